"""`--compat` answers as ADK, Osmosis and OpenHands do, and without it every verdict they would not give is named."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evaldesk
from evaldesk.desk.other_tools import as_tool_judges, decides, difference, tools_beside
from evaldesk.errors import EvaldeskError
from evaldesk.formats import case_from_json, load_evalset
from evaldesk.metrics import score_trial
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    Expected,
    Gates,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
    trial_verdict,
)
from evaldesk.wording.trial_text import first_words

pytest.importorskip("google.adk.evaluation.trajectory_evaluator")

CALLS, ANSWERS = "tool_trajectory_avg_score", "response_match_score"
SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
REWARD = Criterion("reported_value", 1.0, {"path": "reward"})
SUCCESS = Criterion("reported_value", 1.0, {"path": "test_result.success"})
FUNCTION = Criterion("rewards:f", 0.5, {"function": "rewards:f"})


def trial_of(case: Case, turns: tuple[TurnRecord, ...], criteria: list[Criterion], *, strict: bool) -> TrialResult:
    """A trial with the scores and the verdict that our own rules give it."""
    transcript = Transcript(turns)
    scores = score_trial(transcript, case, criteria, strict=strict)
    verdict = trial_verdict(scores, criteria, None)
    return TrialResult(1, 0, 0, "finished", verdict, transcript=transcript, scores=scores)


def record(calls: tuple[ToolCall, ...], answer: str) -> TurnRecord:
    """A turn in which the agent makes the calls and gives the answer."""
    events = [Event("tool_call", call=call) for call in calls]
    return TurnRecord("q", (*events, Event("agent_message", text=answer)))


def adk_invocation(calls: tuple[ToolCall, ...], answer: str | None) -> Any:
    """The same as ADK has it."""
    from google.adk.evaluation.eval_case import Invocation

    uses = [{"name": call.name, "args": dict(call.args)} for call in calls]
    said = None if answer is None else {"role": "model", "parts": [{"text": answer}]}
    return Invocation.model_validate(
        {
            "user_content": {"role": "user", "parts": [{"text": "q"}]},
            "final_response": said,
            "intermediate_data": {"tool_uses": uses},
        }
    )


def adk_answer(
    actual: list[Any], expected: list[Any] | None, criteria: list[Criterion]
) -> tuple[str, dict[str, float | None]]:
    """The verdict and the means of ADK's own evaluators; an evaluator that raises has evaluated nothing."""
    from google.adk.evaluation.eval_metrics import EvalMetric, EvalStatus
    from google.adk.evaluation.final_response_match_v1 import RougeEvaluator
    from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator

    means: dict[str, float | None] = {}
    statuses = []
    for each in criteria:
        criterion = {"threshold": each.threshold, **each.options}
        metric = EvalMetric.model_validate(
            {"metric_name": each.metric, "threshold": each.threshold, "criterion": criterion}
        )
        kind: Any = TrajectoryEvaluator if each.metric == CALLS else RougeEvaluator
        try:
            found = kind(eval_metric=metric).evaluate_invocations(actual, expected, None)
        except ValueError:
            means[each.metric] = None
            continue
        means[each.metric] = found.overall_score
        statuses.append(found.overall_eval_status)
    if EvalStatus.FAILED in statuses:
        return "failed", means
    return "passed" if EvalStatus.PASSED in statuses else "unscored", means


@cache
def both_readings(path: Path) -> tuple[tuple[Case, Any], ...]:
    """The cases of a file as we read them, each with ADK's own reading; empty where ADK reads no eval set in it."""
    from google.adk.evaluation.local_eval_sets_manager import (
        convert_eval_set_to_pydantic_schema,
        load_eval_set_from_file,
    )

    value = json.loads(path.read_text())
    try:
        if isinstance(value, list) and value and "query" in value[0]:
            theirs = convert_eval_set_to_pydantic_schema("x", [{"name": "x", "data": value, "initial_session": {}}])
        else:
            theirs = load_eval_set_from_file(str(path), "x")
        ours = load_evalset(path)
    except (EvaldeskError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    assert len(ours.cases) == len(theirs.eval_cases)
    return tuple(zip(ours.cases, theirs.eval_cases, strict=True))


def answers_to(case: Case, chance: random.Random) -> tuple[TurnRecord, ...]:
    """An agent that is right, wrong or silent in each turn, and calls too much or too little."""
    found = []
    for turn in case.turns:
        right = turn.expected.reference or ""
        calls = turn.expected.tool_calls or ()
        answer = chance.choice([right, right, "something else", right[: len(right) // 2], ""])
        made = chance.choice([calls, calls, calls[:-1], (*calls, ToolCall("extra", {"x": 1})), calls[::-1]])
        found.append(record(made, answer))
    return tuple(found)


def assert_as_adk(case: Case, turns: tuple[TurnRecord, ...], expected: Any, criteria: list[Criterion]) -> str:
    """With `--compat adk` verdict and means are ADK's; without it they are, too, or the difference is said."""
    actual = [adk_invocation(turn.tool_calls, turn.answer or None) for turn in turns]
    verdict, means = adk_answer(actual, expected, criteria)
    strict = trial_of(case, turns, criteria, strict=True)
    own = trial_of(case, turns, criteria, strict=False)

    judged = as_tool_judges("adk", case, strict, criteria)
    said = difference("adk", case, own, criteria)

    assert judged.verdict == verdict
    assert {score.metric: score.value for score in judged.scores if score.turn is None} == means
    assert as_tool_judges("adk", case, own, criteria).verdict == verdict
    assert as_tool_judges("adk", case, judged, criteria) == judged
    if own.verdict == verdict:
        assert not said
    else:
        assert said.startswith(f"{own.verdict} here, {verdict} by `adk eval`: ")
    return said


@pytest.mark.parametrize("name", ["adk.evalset.json", "adk-flat.test.json", "adk-old.old.evalset.json"])
def test_every_adk_file_is_judged_as_adk_judges_it(name: str) -> None:
    assert judge_beside_adk(SAMPLES / name) == 1


def judge_beside_adk(path: Path) -> int:
    """Compare the verdicts on each case of a file, as agents by chance answer it; the number of cases."""
    chance = random.Random(path.name)
    cases = both_readings(path)
    for case, theirs in cases:
        for _ in range(6):
            options = {"match_type": chance.choice(["EXACT", "IN_ORDER", "ANY_ORDER"])}
            thresholds = chance.choice([(1.0, 0.8), (0.5, 0.5), (0.75, 0.0)])
            criteria = [Criterion(CALLS, thresholds[0], options), Criterion(ANSWERS, thresholds[1])]
            assert_as_adk(case, answers_to(case, chance), theirs.conversation, criteria)
    return len(cases)


CALL = st.builds(ToolCall, st.sampled_from(["a", "b"]), st.sampled_from([{}, {"x": 1}, {"x": True}, {"x": "1"}]))
MADE = st.lists(CALL, max_size=3).map(tuple)
TEXT = st.sampled_from(["", "yes", "yes no", "no", "the dice says seven", "七", "!?"])
TURNS = st.lists(st.tuples(st.none() | MADE, st.none() | TEXT, MADE, TEXT, st.booleans()), min_size=0, max_size=4)


@given(
    TURNS,
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 0.5, 0.8]),
    st.sampled_from([(CALLS,), (ANSWERS,), (CALLS, ANSWERS)]),
)
def test_any_case_is_judged_as_adk_judges_it(turns: list[Any], most: float, least: float, names: Any) -> None:
    asked = [Turn("q", Expected(calls, reference=text)) for calls, text, *_ in turns]
    played = tuple(
        record(calls or (), text or "") if same else record(made, said) for calls, text, made, said, same in turns
    )
    expected = [adk_invocation(calls or (), text) for calls, text, *_ in turns]
    criteria = [Criterion(name, most if name == CALLS else least) for name in names]

    assert_as_adk(Case("c", tuple(asked)), played, expected, criteria)


def test_a_played_set_has_the_means_of_adk() -> None:
    ((case, theirs),) = both_readings(SAMPLES / "adk.evalset.json")
    criteria = [Criterion(CALLS, 1.0), Criterion(ANSWERS, 0.5)]

    run = evaldesk.evaluate(_says(case), [case], criteria=criteria, compat="adk")

    trial = run[0][0]
    actual = [adk_invocation(turn.tool_calls, turn.answer) for turn in trial.transcript.turns]
    verdict, means = adk_answer(actual, theirs.conversation, criteria)
    assert {score.metric: score.value for score in trial.scores if score.turn is None} == means
    assert trial.verdict == verdict


def test_a_turn_without_a_reference_is_compared_with_an_empty_one() -> None:
    case = Case("c", (Turn("yes", Expected(reference="yes")), Turn("no")))
    criteria = [Criterion(ANSWERS, 0.8)]

    ours = evaldesk.evaluate(_echo, [case], criteria=criteria)
    theirs = evaldesk.evaluate(_echo, [case], criteria=criteria, compat="adk")

    assert [ours.n_passed, theirs.n_failed] == [1, 1]
    assert [_mean(ours[0][0]), _mean(theirs[0][0])] == [1.0, 0.5]
    assert theirs.config.compat == "adk"
    said = difference("adk", case, ours[0][0], criteria)
    assert said == (
        "passed here, failed by `adk eval`: response_match_score is 0.5 there, "
        "where a turn that asserts nothing expects no tool call and an empty answer"
    )


def test_the_reason_of_a_difference_is_the_score_that_decides() -> None:
    case = Case("c", (Turn("asked"),))
    criteria = [Criterion(CALLS, 1.0), Criterion(ANSWERS, 0.8)]
    own = trial_of(case, (record((), "answered"),), criteria, strict=False)

    judged = as_tool_judges("adk", case, own, criteria)

    assert [score.passed for score in judged.scores if score.turn is None] == [True, False]
    assert "failed by `adk eval`: response_match_score is 0 there" in difference("adk", case, own, criteria)
    answers = [score for score in judged.scores if score.metric == ANSWERS]
    assert [score.reason for score in answers] == [
        "No reference answer: `adk eval` compares with an empty text, which gives 0.",
        "1 of 1 turns without a reference answer, which score 0 in `adk eval`.",
    ]


@pytest.mark.parametrize(("tool", "verdict", "value"), [("adk", "failed", None), ("osmosis", "failed", 0.0)])
def test_an_errored_trial_is_failed(tool: str, verdict: str, value: float | None) -> None:
    criteria = [REWARD] if tool == "osmosis" else None
    case = Case("c", (Turn("raise", Expected((), reference="yes")),))

    run = evaldesk.evaluate(_echo, [case], criteria=criteria, compat=tool)

    trial = run[0][0]
    assert trial.verdict == verdict
    assert trial.error is not None
    assert [score.value for score in trial.scores] == ([] if value is None else [value])


@pytest.mark.parametrize("tool", ["evaldesk", "adk", "osmosis", "openhands"])
def test_an_eval_function_that_raises_is_0_for_osmosis_and_left_out_by_adk(tool: str) -> None:
    error = Score(FUNCTION.metric, threshold=0.5, error=ErrorRecord("metric", "KeyError: 'x'"))
    trial = TrialResult(1, 0, 0, "finished", "errored", scores=(error,))

    judged = as_tool_judges(tool, Case("c"), trial, [FUNCTION])

    verdicts = {"evaldesk": "errored", "adk": "unscored", "osmosis": "failed", "openhands": "unscored"}
    assert judged.verdict == verdicts[tool]
    assert judged.scores[0].value == (0.0 if tool == "osmosis" else None)


@pytest.mark.parametrize(
    ("tool", "criterion", "value", "error", "verdict"),
    [
        ("openhands", SUCCESS, 1.0, "", "passed"),
        ("openhands", SUCCESS, 0.0, "", "failed"),
        ("openhands", SUCCESS, None, "", "failed"),
        ("openhands", SUCCESS, None, "Timeout after 9 seconds", "failed"),
        ("openhands", REWARD, 1.0, "", "unscored"),
        ("osmosis", REWARD, 1.0, "", "passed"),
        ("osmosis", REWARD, None, "", "failed"),
        ("osmosis", replace(REWARD, threshold=0.0), None, "it broke", "passed"),
    ],
)
def test_what_is_missing_counts_as_0(
    tool: str, criterion: Criterion, value: float | None, error: str, verdict: str
) -> None:
    score = Score("reported_value", value, threshold=1.0, passed=None if value is None else value >= 1.0)
    broken = ErrorRecord("timeout", error) if error else None
    own = trial_verdict([score], [criterion], broken)
    trial = TrialResult(
        1, 0, 0, "errored" if error else "finished", own, scores=() if error else (score,), error=broken
    )

    said = difference(tool, Case("c"), trial, [criterion])

    assert as_tool_judges(tool, Case("c"), trial, [criterion]).verdict == verdict
    assert bool(said) == (own != verdict)
    assert said.startswith(f"{own} here, {verdict} by " if said else "")


@pytest.mark.parametrize("own", ["passed", "failed", "errored", "unscored"])
@pytest.mark.parametrize("tool", ["adk", "osmosis", "openhands"])
def test_a_difference_is_said_exactly_where_the_verdicts_differ(tool: str, own: Any) -> None:
    criteria = [Criterion(CALLS, 1.0), Criterion("final_state_match", 1.0), FUNCTION, SUCCESS]
    for found in _states():
        scores = tuple(_score(each, found[each.metric]) for each in criteria)
        trial = TrialResult(1, 0, 0, "finished", own, scores=scores)
        theirs = as_tool_judges(tool, Case("c"), trial, criteria).verdict

        assert bool(difference(tool, Case("c"), trial, criteria)) == (own != theirs)


def _states() -> Iterator[Mapping[str, float | None]]:
    chance = random.Random(5)
    names = [CALLS, "final_state_match", FUNCTION.metric, "reported_value"]
    for _ in range(40):
        yield {name: chance.choice([0.0, 1.0, None, math.nan]) for name in names}


def _score(criterion: Criterion, value: float | None) -> Score:
    if value is not None and math.isnan(value):
        return Score(criterion.metric, threshold=criterion.threshold, error=ErrorRecord("metric", "it broke"))
    passed = None if value is None else value >= (criterion.threshold or 0)
    return Score(criterion.metric, value, threshold=criterion.threshold, passed=passed)


def test_each_tool_decides_by_what_it_knows() -> None:
    def tools_of(criterion: Criterion) -> list[str]:
        return [tool for tool in ("adk", "osmosis", "openhands") if decides(tool, criterion)]

    assert tools_of(Criterion(CALLS, 1.0)) == tools_of(Criterion(f"{CALLS}/2", 1.0)) == ["adk"]
    assert tools_of(Criterion("tool_call_count_v1", 1.0)) == tools_of(Criterion("final_state_match", 1.0)) == []
    assert tools_of(FUNCTION) == ["adk", "osmosis"]
    assert (tools_of(REWARD), tools_of(SUCCESS)) == (["osmosis"], ["openhands"])
    assert tools_of(Criterion(CALLS)) == []


def test_a_run_is_read_by_the_rules_that_apply_to_it() -> None:
    config = RunConfig(AgentRef("a", "a:b"), "set", criteria=(FUNCTION,))

    assert tools_beside(config) == ("osmosis",)
    assert tools_beside(config, "adk") == ("adk", "osmosis")
    assert tools_beside(replace(config, criteria=(Criterion(CALLS, 1.0), SUCCESS))) == ("adk", "openhands")
    assert tools_beside(replace(config, compat="osmosis")) == ()


def test_gates_that_were_asked_for_stay() -> None:
    asked = Gates(min_pass_rate=0.5)

    assert {asked.as_tool(tool) for tool in ("evaldesk", "adk", "osmosis", "openhands")} == {asked}
    assert Gates().as_tool("adk").as_tool("adk") == Gates().as_tool("adk")
    assert not Gates().as_tool("osmosis").all_must_pass


def _echo(message: str, state: Mapping[str, Any]) -> str:
    if message == "raise":
        raise ValueError("asked to")
    return message


def _says(case: Case) -> Any:
    answers = {turn.query: turn.expected.reference or "" for turn in case.turns}

    def agent(message: str, state: Mapping[str, Any]) -> str:
        return answers[message]

    return agent


def _mean(trial: TrialResult) -> float | None:
    return next(score.value for score in trial.scores if score.turn is None)


JUDGE = Criterion("final_response_match_v2", 0.5)
NO_VALUE = Score(JUDGE.metric, threshold=0.5, reason="The judge gave no answer.")
FAULT = replace(NO_VALUE, error=ErrorRecord("judge", "The judge is down."))


@pytest.mark.parametrize(
    ("of_judge", "verdict", "why"),
    [(NO_VALUE, "unscored", "The judge gave no answer."), (FAULT, "errored", "The judge gave no answer.")],
)
def test_a_trial_without_a_verdict_names_the_metric_that_gave_none(of_judge: Score, verdict: str, why: str) -> None:
    case = Case("c", (Turn("q", Expected(reference="yes")),))
    criteria = [Criterion(CALLS, 1.0), Criterion(ANSWERS, 0.8), JUDGE]
    trial = trial_of(case, (record((), "no"),), criteria[:2], strict=False)
    trial = replace(trial, scores=(*trial.scores, of_judge))
    trial = replace(trial, verdict=trial_verdict(trial.scores, criteria, None))

    assert trial.verdict == verdict
    assert first_words(case, trial) == f"{JUDGE.metric}: {why}"
    assert difference("adk", case, trial, criteria) == (
        f"{verdict} here, failed by `adk eval`: it leaves out the turns that could not be judged"
    )


@pytest.mark.parametrize(
    ("raw_call", "verdict"),
    [
        ({"name": "list_all"}, "failed"),
        ({"name": "list_all", "args": None}, "failed"),
        ({"name": "list_all", "args": {}}, "passed"),
    ],
    ids=["absent", "null", "empty"],
)
def test_a_call_without_arguments_in_the_file_is_null_in_adk(raw_call: dict[str, Any], verdict: str) -> None:
    from google.adk.evaluation.eval_case import IntermediateData, Invocation
    from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator
    from google.genai import types

    turn: Any = {"user_content": {"parts": [{"text": "x"}]}, "intermediate_data": {"tool_uses": [raw_call]}}
    case = case_from_json({"eval_id": "c", "conversation": [turn]}, "c")
    criteria = [Criterion(CALLS, 1.0)]
    trial = trial_of(case, (record((ToolCall("list_all", {}),), "x"),), criteria, strict=False)

    content = types.Content(parts=[types.Part(text="x")])
    actual, expected = (
        Invocation(user_content=content, intermediate_data=IntermediateData(tool_uses=[types.FunctionCall(**call)]))
        for call in ({"name": "list_all", "args": {}}, raw_call)
    )
    evaluation = TrajectoryEvaluator(threshold=1.0).evaluate_invocations([actual], [expected])

    assert trial.verdict == "passed"
    assert as_tool_judges("adk", case, trial, criteria).verdict == verdict
    assert evaluation.overall_score == (1.0 if verdict == "passed" else 0.0)


def test_a_turn_without_a_model_call_counts_0_in_adk_and_nothing_here() -> None:
    criteria = [Criterion("inference_call_count_v1")]
    case = Case("c", (Turn("a"), Turn("b")))
    turns = (record((), "x"), with_usage(record((), "y")))
    trial = trial_of(case, turns, criteria, strict=False)

    own, by_adk = (
        {score.turn: score.value for score in each.scores}
        for each in (trial, as_tool_judges("adk", case, trial, criteria))
    )

    assert own == {0: None, 1: 1.0, None: 1.0}
    assert by_adk == {0: 0.0, 1: 1.0, None: 0.5}


def with_usage(turn: TurnRecord) -> TurnRecord:
    """The turn with a model call."""
    return replace(turn, events=(*turn.events, Event("usage", usage=Usage("m", tokens_in=1, tokens_out=1))))
