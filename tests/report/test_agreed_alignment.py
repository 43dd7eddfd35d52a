"""The page draws the very alignment that the metrics of a turn used."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.diff.divergence import first_divergence
from evaldesk.diff.turn_diff import turn_diff
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord

FIND, BOOK = ToolCall("find", {"q": "rome"}), ToolCall("book", {"id": 7})
OTHER = ToolCall("find", {"q": "Rome!"})
LOOSE = Criterion("tool_any_order", 1.0, {"args_by_tool": {"find": "ignore"}})
STRICT = Criterion("tool_f1", 0.5)
ADK_LOOSE = Criterion("tool_trajectory_avg_score", 1.0, {"ignore_args": True, "match_type": "ANY_ORDER"})


def played(*calls: ToolCall) -> TurnRecord:
    return TurnRecord("q", tuple(Event("tool_call", call=call) for call in calls))


def scores(record: TurnRecord, *criteria: Criterion) -> list[Score]:
    found = score_trial(Transcript((record,)), Case("c", (Turn("q", Expected((FIND, BOOK))),)), criteria)
    return [score for score in found if score.turn == 0]


def rows(record: TurnRecord, found: list[Score]) -> list[tuple[Any, ...]]:
    diff = turn_diff(Expected((FIND, BOOK)), record, found)
    return [(row.op, row.expected_place, row.actual_place, row.because) for row in diff.calls]


def test_strict_metrics_align_by_equality() -> None:
    record = played(BOOK, OTHER)

    assert (
        rows(record, scores(record, STRICT))
        == rows(record, [])
        == [("-", 1, None, ()), ("=", 2, 1, ()), ("+", None, 2, ())]
    )


@pytest.mark.parametrize("criterion", [LOOSE, ADK_LOOSE], ids=["own", "adk"])
def test_a_metric_that_accepts_other_arguments_says_so_on_the_page(criterion: Criterion) -> None:
    moved, in_place = played(BOOK, OTHER), played(OTHER, BOOK)

    assert rows(moved, scores(moved, criterion)) == [("=", 2, 1, ()), ("moved", 1, 2, ("arguments are ignored",))]
    assert rows(in_place, scores(in_place, criterion)) == [("~", 1, 1, ("arguments are ignored",)), ("=", 2, 2, ())]


def test_where_metrics_disagree_equality_decides() -> None:
    record = played(BOOK, OTHER)

    assert rows(record, scores(record, LOOSE, STRICT)) == rows(record, [])


def test_what_was_accepted_is_no_divergence() -> None:
    case, record = Case("c", (Turn("q", Expected((FIND, BOOK))),)), played(OTHER, BOOK)
    found = scores(record, LOOSE)
    diff = turn_diff(case.turns[0].expected, record, found)

    assert (diff.differs, diff.summary) == (False, "2 calls")
    assert first_divergence(case, Transcript((record,)), found) is None
    assert str(first_divergence(case, Transcript((record,)))).startswith("turn 1, call 1: find was called with")


@pytest.mark.parametrize(
    "details",
    [
        {"steps": [["=", 5, 0]], "accepted": []},
        {"steps": [["=", 0, 0]], "accepted": []},
        {"steps": [["?", 0, 0], ["=", 1, 1]], "accepted": []},
        {"steps": "=", "accepted": 3},
        {"steps": [["=", "0", 0], ["=", True, 1]]},
        {"steps": [["=", 0, 0], ["=", 1, 1], ["+", None, 2]]},
    ],
    ids=str,
)
def test_steps_that_do_not_fit_the_calls_are_left_alone(details: Any) -> None:
    record = played(OTHER, BOOK)
    score = Score("tool_exact", 1.0, 0, details={"n_expected": 2, **details})

    assert rows(record, [score]) == rows(record, [])
