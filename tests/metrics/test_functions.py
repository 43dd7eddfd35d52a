"""Functions of the user as metrics: what they see, what they may return, and what becomes of the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import UsageError
from evaldesk.metrics import build_metric, check_criteria, grade_trial, load_function_of, score_trial, unscored_reason
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.wire import from_json, to_json

REWARDS = """
import math
from dataclasses import dataclass

SEEN = []

def exact(solution_str, ground_truth, extra_info=None):
    SEEN.append((solution_str, ground_truth, extra_info))
    return solution_str.strip() == ground_truth

async def later(solution_str, ground_truth, extra_info=None, **kwargs):
    return 1

def full(messages, ground_truth, metadata):
    SEEN.append(messages)
    return len(messages) / 10

def short(solution_str, ground_truth):
    return 0.5

def whole(transcript, case, state):
    return state["booked"] == case.final_state["booked"]

def database(state, case):
    wanted = {"orders": []}
    for turn in case.turns:
        for call in turn.expected.tool_calls or ():
            wanted["orders"].append(call.args["item"])
    return state == wanted

def scores(case):
    from evaldesk.model import Score
    return [Score("x", 0.25, 0, reason="Turn."), Score("x", 0.75, reason="Both.", details={"why": "so"})]

def raising(solution_str, ground_truth, extra_info=None):
    raise ZeroDivisionError("by nought")

def leaving(solution_str, ground_truth, extra_info=None):
    raise SystemExit(2)

def nothing(solution_str, ground_truth, extra_info=None):
    return None

def text(solution_str, ground_truth, extra_info=None):
    return "1.0"

def nan(solution_str, ground_truth, extra_info=None):
    return math.nan

def infinite(solution_str, ground_truth, extra_info=None):
    return math.inf

def seven(solution_str, ground_truth, extra_info=None):
    return 7

def odd(answer):
    return 1.0

def bare():
    return 1.0

class Judge:
    def __call__(self, solution_str, ground_truth, extra_info=None):
        return 0.5

judge = Judge()
NUMBER = 3
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    yield str(tmp_path)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]
    sys.modules.pop("own_rewards", None)


def record(answer: str, calls: tuple[ToolCall, ...] = (), **state: Any) -> TurnRecord:
    events = [Event("user_message", text="q"), *(Event("tool_call", call=call) for call in calls)]
    events += [Event("tool_result", call=call, result={"ok": True}) for call in calls]
    if answer:
        events.append(Event("agent_message", text=answer))
    return TurnRecord("q", tuple(events), state_after=state)


CASE = Case(
    "c",
    (Turn("What is 6 x 7?", Expected(reference="42")),),
    final_state={"booked": True},
    extra={"system_prompt": "Be short.", "level": 3, "$form": {"keys": []}},
)
TRANSCRIPT = Transcript((record("42", (ToolCall("multiply", {"a": 6, "b": 7}),), booked=True),))


async def scored(root: str, name: str, *, transcript: Transcript = TRANSCRIPT, **options: Any) -> Score:
    criterion = Criterion(f"own_rewards:{name}", 0.5, {"function": f"own_rewards:{name}", "root": root} | options)
    grading = await grade_trial(transcript, CASE, [criterion])
    assert from_json(to_json(grading.scores), tuple[Score, ...]) == grading.scores
    return grading.scores[-1]


def seen() -> list[Any]:
    found: list[Any] = sys.modules["own_rewards"].SEEN
    return found


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "value"),
    [("exact", 1.0), ("later", 1.0), ("full", 0.5), ("short", 0.5), ("whole", 1.0), ("seven", 7.0), ("judge", 0.5)],
)
async def test_a_function_gives_the_value_of_the_trial(root: str, name: str, value: float) -> None:
    score = await scored(root, name)

    assert (score.value, score.passed, score.error) == (value, True, None)
    assert score.metric == f"own_rewards:{name}"
    assert score.reason.endswith(".")


@pytest.mark.anyio
async def test_a_simple_function_sees_the_answer_and_the_row(root: str) -> None:
    await scored(root, "exact")

    row = {"system_prompt": "Be short.", "user_prompt": "What is 6 x 7?", "ground_truth": "42", "level": 3}
    assert seen() == [("42", "42", row)]


@pytest.mark.anyio
async def test_a_full_function_sees_the_messages(root: str) -> None:
    await scored(root, "full")

    (messages,) = seen()
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "multiply", "arguments": '{"a":6,"b":7}'}
    assert messages[-1]["content"] == "42"


@pytest.mark.anyio
async def test_a_function_may_compare_the_state_a_replay_gives(root: str) -> None:
    case = Case("shop", (Turn("Order tea", Expected((ToolCall("order", {"item": "tea"}),))),))
    criterion = Criterion("db", 1.0, {"function": "own_rewards:database", "root": root})
    good, bad = (Transcript((record("Done", orders=orders),)) for orders in (["tea"], ["tea", "tea"]))

    assert (await grade_trial(good, case, [criterion])).scores[0].passed is True
    assert (await grade_trial(bad, case, [criterion])).scores[0].passed is False


@pytest.mark.anyio
async def test_a_function_may_give_scores_of_its_own(root: str) -> None:
    criterion = Criterion("mine", 0.5, {"function": "own_rewards:scores", "root": root})

    turn, whole = (await grade_trial(TRANSCRIPT, CASE, [criterion])).scores

    assert (turn.metric, turn.turn, turn.value, turn.passed) == ("mine", 0, 0.25, False)
    assert (whole.value, whole.passed, whole.reason, whole.details) == (0.75, True, "Both.", {"why": "so"})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raising", "ZeroDivisionError: by nought"),
        ("leaving", "SystemExit: 2"),
        ("nothing", "the function returned None"),
        ("text", "the function returned str"),
        ("nan", "the function returned nan"),
        ("infinite", "the function returned inf"),
        ("odd", "first parameter is 'answer'"),
        ("bare", "Eval function has no parameters"),
        ("NUMBER", "'NUMBER' in 'own_rewards' is not callable"),
        ("absent", "Module 'own_rewards' has no attribute 'absent'. Available: ['math', "),
    ],
)
async def test_what_is_no_number_is_an_error_with_its_trace(root: str, name: str, said: str) -> None:
    score = await scored(root, name)

    assert score.error is not None
    assert said in score.error.message
    assert (score.verdict, score.value) == ("errored", None)
    assert "Traceback" in score.error.trace


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["raising", "nothing", "text", "nan", "infinite", "short", "absent"])
async def test_osmosis_counts_the_same_as_zero(root: str, name: str) -> None:
    score = await scored(root, name, compat="osmosis")

    assert (score.value, score.passed, score.error) == (0.0, False, None)
    assert score.reason.startswith("Counted as 0, as Osmosis does: ")


@pytest.mark.anyio
async def test_only_osmosis_scores_an_older_answer(root: str) -> None:
    stale = Transcript((record("42"), record("", (ToolCall("multiply", {}),))))

    assert (await scored(root, "exact", transcript=stale)).value == 0.0
    assert (await scored(root, "exact", transcript=stale, compat="osmosis")).value == 1.0


@pytest.mark.anyio
async def test_a_declared_range_is_kept_to(root: str) -> None:
    score = await scored(root, "seven", low=0, high=1)

    assert score.error is not None
    assert "gave 7.0, outside of 0 to 1" in score.error.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": "a:b", "compatt": "osmosis"}, "did you mean 'compat'?"),
        ({"function": "a:b", "compat": "inspect"}, "Invalid enum value 'inspect'"),
        ({"function": 3}, "Expected `str`, got `int`"),
        ({"function": "a:b", "low": 1, "high": 0}, "low must lie under high"),
        ({"function": "a:b", "low": 0, "high": 1, "threshold": 2}, "no option of mine named 'threshold'"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_criteria([Criterion("mine", 0.5, options)])


def test_a_threshold_outside_of_the_declared_range_is_refused() -> None:
    with pytest.raises(UsageError, match="out of range"):
        check_criteria([Criterion("mine", 7, {"function": "a:b", "low": 0, "high": 1})])


def test_nothing_is_imported_before_the_worker_scores(root: str) -> None:
    criterion = Criterion("mine", 0.5, {"function": "own_rewards:exact", "root": root})

    check_criteria([criterion])
    build_metric(criterion)

    assert unscored_reason(criterion, CASE) is None
    assert "own_rewards" not in sys.modules


def test_functions_are_imported_ahead_of_the_first_turn(root: str) -> None:
    good, bad = (Criterion(name, 0.5, {"function": f"own_rewards:{name}", "root": root}) for name in ("exact", "no"))

    load_function_of(good)

    assert "own_rewards" in sys.modules
    with pytest.raises(Exception, match="has no attribute 'no'"):
        load_function_of(bad)


def test_scoring_at_once_says_what_it_cannot_do(root: str) -> None:
    (score,) = score_trial(TRANSCRIPT, CASE, [Criterion("m", 0.5, {"function": "own_rewards:exact", "root": root})])

    assert score.value == 1.0


ADK = """
from types import SimpleNamespace

def same_answer(eval_metric, actual_invocations, expected_invocations=None, conversation_scenario=None):
    results = []
    for actual, expected in zip(actual_invocations, expected_invocations):
        said = actual.final_response.parts[0].text == expected.final_response.parts[0].text
        names = [call.name for call in actual.intermediate_data.tool_uses]
        assert names == ["multiply"] and actual.intermediate_data.tool_uses[0].args == {"a": 6, "b": 7}
        results.append(SimpleNamespace(score=float(said)))
    assert (eval_metric.metric_name, eval_metric.threshold) == ("mine", 0.5)
    return SimpleNamespace(overall_score=sum(r.score for r in results) / len(results), per_invocation_results=results)

def too_few(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    return SimpleNamespace(overall_score=1.0, per_invocation_results=[SimpleNamespace(score=1.0)] * 2)

def not_evaluated(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    return SimpleNamespace(overall_score=None, per_invocation_results=[])
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("same_answer", "passed", "The function gave 1."),
        ("too_few", "errored", "the function gave 2 results for 1 turns"),
        ("not_evaluated", "unscored", "The function evaluated nothing here."),
    ],
)
async def test_a_custom_metric_of_adk_runs_unchanged(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str, verdict: str, said: str
) -> None:
    monkeypatch.setattr("evaldesk.metrics.adk_custom._has_adk", lambda: False)  # its import takes seconds
    Path(root, "own_rewards.py").write_text(ADK)
    criterion = Criterion("mine", 0.5, {"function": f"own_rewards:{name}", "root": root})

    grading = await grade_trial(TRANSCRIPT, CASE, [criterion])

    assert grading.scores[-1].verdict == verdict
    assert said in grading.scores[-1].reason
