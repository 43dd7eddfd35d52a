"""What every metric of the table keeps to, and what happens to one that does not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import pytest

from evaldesk.errors import MetricError, NotFoundError, UsageError
from evaldesk.metrics import (
    METRICS,
    MetricInfo,
    build_metric,
    check_criteria,
    grade_trial,
    metric_info,
    metric_options,
    missing_reasons,
    scoring,
)
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord, Usage
from evaldesk.model.decisions import Decision, Waiting
from evaldesk.model.transcript import report
from evaldesk.reading.pinned_turns import with_pinned_turns
from evaldesk.wire import from_json, to_json

from .judging import PANEL, Told, scripted

CALLS = (ToolCall("a", {"x": 1}), ToolCall("b", {}))
# JSON, with a number and more than one word: what any metric of answers may need.
STEP = "I look at both."
ONE, THREE = '["one", 2]', '["three", 4]'
FULL = Case(
    "full",
    (Turn("q", Expected(CALLS, (("", STEP),), ONE)), Turn("q", Expected((), (("", STEP),), THREE))),
    final_state={"done": True},
    extra={
        "human_decisions": [{"turn": 1, "tool": "a", "decision": "approve"}],
        "expected_outcomes": [{"outcome": "answered"}],
        "required_calls": [{"name": call.name, "arguments": {**call.args}} for call in CALLS],
    },
)
BARE = Case("bare", (Turn("q"), Turn("q")))
QUERY = f"Say {ONE}, then {THREE}."
SCENARIO = Case("scenario", scenario={"starting_prompt": QUERY, "conversation_plan": "Ask for both."})
RUBRIC = "It is an answer."


@pytest.fixture(autouse=True)
def _scripted_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PANEL, scripted)


def score_trial(
    transcript: Transcript, case: Case, criteria: Sequence[Criterion], *, strict: bool = False
) -> tuple[Score, ...]:
    """As a worker scores it, judges asked."""
    return asyncio.run(grade_trial(transcript, case, criteria, strict=strict)).scores


def full(name: str) -> Case:
    """A case that says all that the metric may need."""
    return SCENARIO if name == "per_turn_user_simulator_quality_v1" else FULL


def record(calls: tuple[ToolCall, ...], answer: str, **state: Any) -> TurnRecord:
    usage = Event("usage", usage=Usage("m", tokens_in=3, tokens_out=2, cost=0.01, duration_ms=4.0))
    said = () if answer == "four" else (Event("agent_message", text=STEP),)
    told = (*said, Event("agent_message", text=answer), report({"reward": 0.5}))
    waiting = [Waiting(call.name, call.name) for call in calls if call.name == "a"]
    asked = [Event("decision", waiting=each, decision=Decision("approve", each.tool)) for each in waiting]
    events = (usage, *asked, *(Event("tool_call", call=call) for call in calls), *told)
    return TurnRecord(QUERY, events, state_after=state, duration_ms=5.0)


# What a metric cannot do without.
OPTIONS: dict[str, Any] = {
    "tool_used": {"tool": "a"},
    "response_regex": {"pattern": "one|three"},
    "response_json_schema": {"schema": {"type": "array"}},
    "required_outputs": {"outputs": ["one"]},
    "failure_mode": {"failure": "invents prices"},
    "rubric_score": {"rubric": RUBRIC},
    "rubric_based_final_response_quality_v1": {"rubrics": [RUBRIC]},
    "rubric_based_tool_use_quality_v1": {"rubrics": [RUBRIC]},
    "rubric_based_multi_turn_trajectory_quality_v1": {"rubrics": [RUBRIC]},
    "state_path": {"path": "$.done", "want": "every", "value": True},
}


def asked(name: str, threshold: float | None = None) -> Criterion:
    """A criterion that the good transcript meets."""
    return Criterion(name, threshold, OPTIONS.get(name, {}))


TRANSCRIPTS = {
    "good": Transcript((record(CALLS, ONE), record((), THREE, done=True))),
    "bad": Transcript((record(CALLS[1:], "four"), record(CALLS, "", done=1))),
    "cut-short": Transcript((record(CALLS, ONE),)),
    "empty": Transcript(),
}


@pytest.mark.parametrize("name", list(METRICS))
def test_a_metric_says_what_it_is(name: str) -> None:
    info = metric_info(name)

    assert info.name == name
    assert info.title
    assert re.fullmatch(r"[A-Z].*\.", info.summary)
    assert info.low < info.high
    assert info.default_threshold is None or info.low <= info.default_threshold <= info.high
    assert build_metric(Criterion(name)).info is info


def pinned(case: Case) -> tuple[Case, tuple[TurnRecord, ...]]:
    """The case with two pinned turns in front, which would fail every metric, and numbers of turns behind them."""
    turns = TRANSCRIPTS["bad"].turns
    extra = dict(case.extra)
    if "human_decisions" in extra:
        extra["human_decisions"] = [{"turn": 3, "tool": "a", "decision": "approve"}]
        extra["expected_outcomes"] = [{"outcome": "error", "turn": 1}, {"outcome": "answered"}]
    longer = replace(case, turns=case.turns and (Turn("old"), Turn("older"), *case.turns), extra=extra)
    return with_pinned_turns(longer, turns), turns


@pytest.mark.parametrize("transcript_name", TRANSCRIPTS)
@pytest.mark.parametrize("name", [name for name in METRICS if name != "per_turn_user_simulator_quality_v1"])
def test_pinned_turns_are_in_no_score(name: str, transcript_name: str) -> None:
    case, turns = pinned(FULL)
    transcript = TRANSCRIPTS[transcript_name]
    own = score_trial(transcript, FULL, [asked(name)])

    scores = score_trial(Transcript((*turns, *transcript.turns)), case, [asked(name)])

    assert [(each.turn, each.value, each.is_applicable) for each in scores] == [
        (None if each.turn is None else each.turn + 2, each.value, each.is_applicable) for each in own
    ]
    assert missing_reasons(asked(name), (case,)) == missing_reasons(asked(name), (replace(FULL, id=case.id),))
    for score, alone in zip(scores, own, strict=True):
        number = re.match(r"Turn (\d+)", alone.reason)
        assert not number or score.reason.startswith(f"Turn {int(number[1]) + 2}")


def test_judges_read_the_pinned_turns_before_those_that_they_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    case, turns = pinned(SCENARIO)
    judge = Told(["yes"])
    monkeypatch.setattr(PANEL, judge)

    score_trial(Transcript((*turns, TurnRecord("Ask for both."))), case, [asked("per_turn_user_simulator_quality_v1")])

    assert judge.prompts
    assert all("four" in "\n".join(each) for each in judge.prompts)


@pytest.mark.parametrize("played", TRANSCRIPTS)
@pytest.mark.parametrize("name", list(METRICS))
def test_scores_keep_to_the_range_and_cross_the_wire(name: str, played: str) -> None:
    info = metric_info(name)

    scores = score_trial(TRANSCRIPTS[played], full(name), [asked(name, info.default_threshold)])

    assert [score.turn for score in scores].count(None) == 1
    assert len({score.turn for score in scores}) == len(scores)
    for score in scores:
        assert score.error is None, score.error
        assert score.reason.endswith(".")
        if info.default_threshold is None:
            assert score.passed is None
            continue
        assert score.value is not None
        assert info.low <= score.value <= info.high
        assert score.passed == (score.value >= (score.threshold or 0))
    assert from_json(to_json(scores), tuple[Score, ...]) == scores


@pytest.mark.parametrize("name", [name for name in METRICS if metric_info(name).default_threshold is not None])
def test_the_best_trial_scores_highest_and_an_empty_one_fails(name: str) -> None:
    info = metric_info(name)

    *_, best = score_trial(TRANSCRIPTS["good"], full(name), [asked(name, info.default_threshold)])
    *_, worst = score_trial(TRANSCRIPTS["empty"], full(name), [asked(name, info.default_threshold)])

    assert (best.value, best.passed) == (info.high if info.is_higher_better else info.low, True)
    assert worst.passed is False


@pytest.mark.parametrize("name", [name for name in METRICS if metric_info(name).needs != "nothing"])
@pytest.mark.parametrize(("strict", "verdict"), [(False, "not_applicable"), (True, "unscored")])
def test_a_metric_is_not_applicable_where_a_case_asserts_nothing_for_it(name: str, strict: bool, verdict: str) -> None:
    criterion = asked(name, metric_info(name).default_threshold)

    (score,) = score_trial(TRANSCRIPTS["good"], BARE, [criterion], strict=strict)

    assert (score.value, score.passed, score.error, score.verdict) == (None, None, None, verdict)
    assert score.reason == missing_reasons(criterion, [BARE]).get(BARE.id)
    assert missing_reasons(criterion, [FULL]).get(FULL.id) is None
    assert score.threshold == criterion.threshold


@pytest.mark.parametrize("name", list(METRICS))
def test_a_metric_without_threshold_informs_only(name: str) -> None:
    *_, whole = score_trial(TRANSCRIPTS["good"], full(name), [asked(name)])

    assert whole.value is not None
    assert whole.passed is None


@pytest.mark.parametrize("name", [name for name in METRICS if not metric_info(name).is_higher_better])
def test_a_metric_of_which_less_is_better_passes_up_to_its_threshold(name: str) -> None:
    *_, whole = score_trial(TRANSCRIPTS["good"], full(name), [asked(name)])
    assert whole.value is not None

    *_, at = score_trial(TRANSCRIPTS["good"], full(name), [asked(name, whole.value)])
    *_, over = score_trial(TRANSCRIPTS["good"], full(name), [asked(name, whole.value / 2)])
    *_, unknown = score_trial(TRANSCRIPTS["empty"], full(name), [asked(name, whole.value)])

    assert (at.passed, over.passed, unknown.passed) == (True, not whole.value, None)


@dataclass(frozen=True)
class Exploding:
    how: str = "raise"

    info: ClassVar[MetricInfo] = MetricInfo("exploding", "Exploding", "Does whatever it likes.")

    def score(self, transcript: Transcript, case: Case) -> Any:
        if self.how == "raise":
            raise ValueError("boom")
        if self.how == "exit":
            raise SystemExit(3)
        if self.how == "odd":
            return [Score("exploding", 0.5, reason="a\ud800b", details={"at": object()})]  # type: ignore[dict-item]
        returned = {"none": None, "no-whole": [Score("exploding", 1.0, 0)], "high": [Score("exploding", 2.0)]}
        return returned.get(self.how, [Score("exploding", float("nan"))])


@pytest.fixture
def exploding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS._targets, "exploding", f"{__name__}:Exploding")


@pytest.mark.usefixtures("exploding")
@pytest.mark.parametrize("how", ["raise", "exit", "none", "no-whole", "high", "nan"])
def test_a_metric_that_fails_gives_an_error_score_with_its_trace(how: str) -> None:
    (score,) = score_trial(TRANSCRIPTS["good"], FULL, [Criterion("exploding", 0.5, {"how": how})])

    assert score.verdict == "errored"
    assert score.error is not None
    assert score.error.kind == "metric"
    assert "Traceback" in score.error.trace
    assert score.reason.startswith("The metric failed: ")


@pytest.mark.usefixtures("exploding")
def test_what_a_metric_returns_is_made_plain() -> None:
    (score,) = score_trial(TRANSCRIPTS["good"], FULL, [Criterion("exploding", 0.5, {"how": "odd"})])

    assert score.passed is True
    assert from_json(to_json(score), Score) == score


def test_the_range_error_of_a_metric_is_a_metric_error() -> None:
    assert issubclass(MetricError, Exception)
    assert MetricInfo("m", "M", "Less is better.", is_higher_better=False).passes(0.2, 0.5) is True


@pytest.mark.parametrize(
    ("criterion", "field", "message"),
    [
        (Criterion("tool_f2"), "metric", "no metric named 'tool_f2'; did you mean 'tool_f1'?"),
        (Criterion("os:system"), "metric", "no metric named 'os:system'"),
        (Criterion("tool_f1", 7), "tool_f1.threshold", "A score lies between 0 and 1. Did you mean 0.7?"),
        (Criterion("tool_f1", 80), "tool_f1.threshold", "Did you mean 0.8?"),
        (Criterion("tool_f1", -1), "tool_f1.threshold", "threshold -1 is out of range"),
        (Criterion("tool_f1", float("nan")), "tool_f1.threshold", "must be a number, got nan"),
        (Criterion("tool_f1", True), "tool_f1.threshold", "must be a number, got True"),
        (Criterion("token_usage_v1", -1), "token_usage_v1.threshold", "A score is never negative."),
        (
            Criterion("response_number", 1, {"tolerance": -0.5}),
            "response_number.tolerance",
            "tolerance must be a number from 0 up, got -0.5",
        ),
        (Criterion("tool_f1", 1, {"arg": 1}), "tool_f1.arg", "tool_f1 has no option 'arg'; did you mean 'args'?"),
        (Criterion("tool_f1", 1, {"args": "x"}), "tool_f1.args", "tool_f1: Invalid enum value 'x'"),
        (Criterion("response_match_score", 1, {"a": 1}), "response_match_score.a", "has no option 'a'; it has none"),
        (
            Criterion("tool_trajectory_avg_score", 1, {"match_type": "INORDER"}),
            "tool_trajectory_avg_score.match_type",
            "did you mean 'IN_ORDER'?",
        ),
        (
            Criterion("tool_trajectory_avg_score", 1, {"ignore_args": "yes"}),
            "tool_trajectory_avg_score.ignore_args",
            "Expected `bool`, got `str`",
        ),
    ],
)
def test_a_wrong_criterion_is_refused_with_a_hint(criterion: Criterion, field: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check_criteria([criterion])

    assert caught.value.field == field


@pytest.mark.parametrize("name", ["response_json", "response_number"])
def test_a_metric_is_not_applicable_to_a_reference_of_the_wrong_kind(name: str) -> None:
    criterion, case = Criterion(name, 1.0), Case("prose", (Turn("q", Expected(reference="Well, no.")),))

    (score,) = score_trial(TRANSCRIPTS["good"], case, [criterion])

    assert (score.value, score.passed, score.verdict) == (None, None, "not_applicable")
    assert score.reason == missing_reasons(criterion, [case]).get(case.id)
    assert score.reason.startswith("No turn of this case has a reference answer ")


@pytest.mark.parametrize("name", [name for name in METRICS if metric_info(name).required])
def test_a_metric_without_what_it_requires_is_refused_before_a_run(name: str) -> None:
    option = metric_info(name).required[0]

    with pytest.raises(UsageError, match=f"{name} needs its option '{option}'") as caught:
        check_criteria([Criterion(name, 0.5)])

    assert caught.value.field == f"{name}.{option}"
    (score,) = score_trial(TRANSCRIPTS["good"], FULL, [Criterion(name, 0.5)])
    assert (score.verdict, score.reason) == ("unscored", f"Its option `{option}` is empty.")
    check_criteria([asked(name, 0.5)])


@pytest.mark.parametrize("name", list(METRICS))
def test_options_are_described_for_people(name: str) -> None:
    options = metric_options(name)

    build_metric(Criterion(name, None, {option.name: option.default for option in options}))
    for option in options:
        assert option.label
        assert re.fullmatch(r"[A-Z].*\.", option.explanation)
        assert bool(option.choices) == (option.kind in ("choice", "keys"))
        assert not option.choices or option.default in [value for value, _ in option.choices]
    assert {option.name for option in options} >= {*metric_info(name).required}


def test_a_metric_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="tool_f1 is named twice"):
        check_criteria([Criterion("tool_f1", 1.0), Criterion("tool_f1", 0.5)])


def test_an_unknown_metric_ends_as_an_error_score() -> None:
    (score,) = score_trial(TRANSCRIPTS["good"], FULL, [Criterion("nope", 1.0)])

    assert score.error is not None
    assert NotFoundError.__name__ in score.error.message


def test_the_answers_for_an_eval_set_are_kept_for_the_next_form(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of = []
    monkeypatch.setattr(scoring, "missing_of", lambda metric, case: asked_of.append(case.id))
    monkeypatch.setattr(scoring, "_kept_reasons", lru_cache(maxsize=64)(scoring._reasons))
    cases = (FULL, BARE)
    first = Criterion("response_match_score", 0.8)
    same_need, own = Criterion("response_exact"), Criterion("required_outputs", 1.0, {"outputs": ["7"]})
    for times, criterion, given in [(1, first, cases), (1, same_need, cases), (2, own, cases), (2, own, cases)]:
        missing_reasons(criterion, given)

        assert len(asked_of) == times * len(cases), criterion

    missing_reasons(Criterion("required_outputs", 1.0, {"outputs": ["8"]}), cases)
    missing_reasons(first, (*cases, FULL)[:2])
    missing_reasons(first, list(cases))
    assert len(asked_of) == 5 * len(cases)
