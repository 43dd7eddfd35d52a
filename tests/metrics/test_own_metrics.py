"""Our own metrics: strict equality, precision and recall, the final state."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord

TURNS: list[Any] = [pytest.param(row, id=row["id"]) for row in golden("trajectory_cases")["turns"]]


def tool_calls(calls: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(call["name"], call["args"]) for call in calls)


def played(*calls: ToolCall, **state: Any) -> TurnRecord:
    return TurnRecord("q", tuple(Event("tool_call", call=call) for call in calls), state_after=state)


def whole(case: Case, *records: TurnRecord, metric: str, **options: Any) -> Score:
    return score_trial(Transcript(records), case, [Criterion(metric, 1.0, options)])[-1]


@pytest.mark.parametrize("row", TURNS)
@pytest.mark.parametrize("metric", ["tool_exact", "tool_trajectory_avg_score"])
def test_known_scores_over_turns(row: dict[str, Any], metric: str) -> None:
    expected = [None if calls is None else tool_calls(calls) for calls in row["expected_turns"]]
    case = Case("c", tuple(Turn("q", Expected(calls)) for calls in expected))
    transcript = Transcript(tuple(played(*tool_calls(calls)) for calls in row["actual_turns"]))

    *by_turn, total = score_trial(transcript, case, [Criterion(metric, 1.0)])

    found = {score.turn: score.value for score in by_turn}
    assert [found.get(index) for index in range(len(expected))] == row["per_turn_exact"]
    assert total.value == (None if row["case_score"] is None else float(Fraction(row["case_score"])))


A, B, C = ToolCall("a", {"x": 1}), ToolCall("b"), ToolCall("c")
CASE = Case("c", (Turn("q", Expected((A, B))),))


@pytest.mark.parametrize(
    ("metric", "calls", "value"),
    [
        ("tool_exact", (A, B), 1.0),
        ("tool_exact", (A, B, C), 0.0),
        ("tool_exact", (ToolCall("a", {"x": True}), B), 0.0),
        ("tool_in_order", (A, C, B), 1.0),
        ("tool_in_order", (B, A), 0.0),
        ("tool_any_order", (B, C, A), 1.0),
        ("tool_precision", (A, B, C, C), 0.5),
        ("tool_precision", (), 0.0),
        ("tool_recall", (A, C), 0.5),
        ("tool_recall", (A, B, C), 1.0),
        ("tool_f1", (A, C), 0.5),
    ],
)
def test_one_turn(metric: str, calls: tuple[ToolCall, ...], value: float) -> None:
    assert whole(CASE, played(*calls), metric=metric).value == value


@pytest.mark.parametrize(
    ("metric", "calls", "reason"),
    [
        ("tool_exact", (A, B), "All 2 expected calls were made."),
        ("tool_exact", (B, A), "b came as call 1, expected as call 2."),
        ("tool_in_order", (A, C), "Call 2 of 2, b, was not made."),
        ("tool_precision", (A, C), "1 of 2 calls was expected."),
        ("tool_precision", (A,), "1 of 1 call was expected."),
        ("tool_recall", (A, B, C), "2 of 2 expected calls were made."),
        ("tool_f1", (A, C, C), "1 of 3 calls was expected, 1 of 2 expected calls was made."),
    ],
)
def test_the_reason_is_about_what_was_measured(metric: str, calls: tuple[ToolCall, ...], reason: str) -> None:
    assert whole(CASE, played(*calls), metric=metric).reason == reason


def test_arguments_may_be_compared_loosely() -> None:
    other = ToolCall("a", {"x": 1, "page": 2})

    assert whole(CASE, played(other, B), metric="tool_exact").value == 0.0
    assert whole(CASE, played(other, B), metric="tool_exact", args="superset").value == 1.0
    assert whole(CASE, played(other, B), metric="tool_exact", args=["x"]).value == 1.0


def test_right_calls_in_a_wrong_turn_show_in_the_conversation() -> None:
    case = Case("c", (Turn("q", Expected((A,))), Turn("q", Expected((B,)))))

    score = whole(case, played(A, B), played(), metric="tool_exact")

    assert score.value == 0.0
    assert score.details["conversation"] == 1.0


STATED = Case("c", (Turn("q"),), final_state={"total": 11, "who": None})


@pytest.mark.parametrize(
    ("state", "value", "reason"),
    [
        ({"total": 11.0, "who": None, "x": 1}, 1.0, "2 of 2 expected keys have their value at the end."),
        ({"total": 12, "who": None}, 0.0, "1 of 2 expected keys has its value at the end: total not as expected."),
        ({}, 0.0, "0 of 2 expected keys have their value at the end: total, who not set."),
    ],
)
def test_final_state(state: dict[str, Any], value: float, reason: str) -> None:
    score = whole(STATED, played(**state), metric="final_state_match")

    assert (score.value, score.reason) == (value, reason)


def test_the_final_state_of_a_trial_that_was_cut_short_does_not_count() -> None:
    score = whole(Case("c", (Turn("q"),), final_state={}), metric="final_state_match")

    assert (score.value, score.reason) == (0.0, "Turn 1 was never played.")
