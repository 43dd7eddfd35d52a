"""The options of the metrics of tool calls, and single-tool use."""

from __future__ import annotations

from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import UsageError
from evaldesk.metrics import build_metric, score_trial
from evaldesk.metrics.tools.used import UNSEEN_AGENT
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord

SINGLE: list[Any] = [
    pytest.param(row, id=row["id"]) for row in golden("trajectory_cases")["cases"] if "single_tool_use" in row
]


def played(*calls: ToolCall) -> TurnRecord:
    return TurnRecord("q", tuple(Event("tool_call", call=call) for call in calls))


def asked(*calls: ToolCall) -> Turn:
    return Turn("q", Expected(calls))


def scores(metric: str, turns: list[Turn], records: list[TurnRecord], **options: Any) -> list[Score]:
    return list(score_trial(Transcript(tuple(records)), Case("c", tuple(turns)), [Criterion(metric, 1.0, options)]))


def whole(metric: str, expected: list[ToolCall], actual: list[ToolCall], **options: Any) -> Score:
    return scores(metric, [asked(*expected)], [played(*actual)], **options)[-1]


A, B, C = ToolCall("a", {"x": 1}), ToolCall("b"), ToolCall("c")


@pytest.mark.parametrize(
    ("metric", "actual", "value", "reason"),
    [
        ("tool_unordered", [B, A], 1.0, "All 2 expected calls were made."),
        ("tool_unordered", [B, A, C], 0.0, "Call 3 of 3, c, was not expected."),
        ("tool_unordered", [B], 0.0, "Call 1 of 2, a, was not made."),
        ("tool_subset", [B], 1.0, "Nothing but expected calls was made, 1 of 2."),
        ("tool_subset", [], 1.0, "Nothing but expected calls was made, 0 of 2."),
        ("tool_subset", [A, A], 0.0, "Call 2 of 2, a, was not expected."),
    ],
)
def test_orders_without_extras(metric: str, actual: list[ToolCall], value: float, reason: str) -> None:
    score = whole(metric, [A, B], actual)

    assert (score.value, score.reason) == (value, reason)


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"args": "ignore"}, "arguments are ignored"),
        ({"args": "superset"}, None),
        ({"args": ["city"]}, "only city is compared"),
        ({"args_by_tool": {"fly": "ignore"}}, "arguments are ignored"),
        ({"args_by_tool": {"book": "ignore"}}, None),
        ({"any_of": {"n": [2, 3]}}, "n is an allowed value"),
        ({"any_of": {"book/n": [2, 3]}}, None),
        ({"tolerances": {"fly/n": 1}}, "n is within 1"),
        ({"patterns": {"n": "3"}}, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("metric", ["tool_exact", "tool_any_order", "tool_f1"])
def test_every_option_works_in_every_metric(metric: str, options: dict[str, Any], because: str | None) -> None:
    expected, actual = ToolCall("fly", {"city": "Rome", "n": 2}), ToolCall("fly", {"city": "Rome", "n": 3})

    score, total = scores(metric, [asked(expected)], [played(actual)], **options)

    assert score.value == total.value == float(because is not None)
    if because:
        assert score.reason == f"The one expected call was made. Accepted with other arguments: call 1: {because}."
        assert score.details["accepted"] == [{"expected": 0, "actual": 0, "because": [because]}]


def test_the_reason_leaves_out_what_was_accepted() -> None:
    score = whole("tool_exact", [A, B], [ToolCall("a", {"x": 2}), C], args_by_tool={"a": "ignore"})

    assert score.reason.startswith("Of the calls, 1 missing, 1 extra. Accepted with other arguments: call 1: ")


def test_over_the_conversation_calls_may_come_in_another_turn() -> None:
    turns, records = [asked(A), Turn("q"), asked(B)], [played(), played(C), played(A, B)]

    *by_turn, per_turn = scores("tool_exact", turns, records)
    (over_all,) = scores("tool_exact", turns, records, scope="conversation")

    assert [(score.value, score.is_applicable) for score in by_turn] == [(0.0, True), (None, False), (0.0, True)]
    assert (per_turn.value, per_turn.details["conversation"]) == (0.0, 1.0)
    assert (over_all.turn, over_all.value, over_all.reason) == (None, 1.0, "All 2 expected calls were made.")


def test_a_conversation_that_was_cut_short_scores_nothing() -> None:
    (score,) = scores("tool_recall", [asked(A), asked()], [played(A)], scope="conversation")

    assert (score.value, score.reason) == (0.0, "Turn 2 was never played.")


@pytest.mark.parametrize("row", SINGLE)
def test_known_single_tool_use(row: dict[str, Any]) -> None:
    calls = [ToolCall(call["name"], call.get("args") or {}) for call in row["predicted"]]

    score = whole("tool_used", [], calls, tool=row["single_tool_use"]["tool"])

    assert score.value == row["single_tool_use"]["expect"]


@pytest.mark.parametrize(
    ("options", "calls", "value", "reason"),
    [
        ({}, [B, A], 1.0, "a was called once."),
        ({}, [B], 0.0, "a was not called, wanted once or more."),
        ({}, [ToolCall("A")], 0.0, "a was not called, wanted once or more."),
        ({"at_least": 2, "at_most": 2}, [A, B, A], 1.0, "a was called twice."),
        ({"at_least": 2, "at_most": 2}, [A, A, A], 0.0, "a was called 3 times, wanted exactly twice."),
        ({"at_least": 2, "at_most": 3}, [A], 0.0, "a was called once, wanted 2 to 3 times."),
        ({"at_least": 0, "at_most": 0}, [B], 1.0, "a was not called."),
        ({"at_least": 0, "at_most": 0}, [A], 0.0, "a was called once, wanted never."),
        ({"at_least": 0, "at_most": 1}, [A, A], 0.0, "a was called twice, wanted at most once."),
    ],
)
def test_a_named_tool_is_counted(options: dict[str, Any], calls: list[ToolCall], value: float, reason: str) -> None:
    score = whole("tool_used", [], calls, tool="a", **options)

    assert (score.value, score.reason) == (value, reason)


@pytest.mark.parametrize(
    ("agent", "value", "reason"),
    [
        ("", 0.0, "a was called twice, wanted exactly once."),
        ("boss", 1.0, "a was called once by boss."),
        ("clerk", 1.0, "a was called once by clerk."),
        ("scout", 0.0, "a was called twice by scout, wanted exactly once."),
        ("idle", 0.0, "a was not called by idle, wanted exactly once."),
        ("nobody", None, UNSEEN_AGENT.format("nobody")),
    ],
)
def test_the_calls_of_one_agent_are_counted_also_inside_a_tool(agent: str, value: float | None, reason: str) -> None:
    events = [Event("tool_call", call=A, author=author) for author in ("boss", "clerk")]
    events += [Event("tool_call", call=A, author="scout", within="b")] * 2
    events += [Event("agent_message", author="idle", text="ready")]

    (score,) = scores(
        "tool_used", [Turn("q")], [TurnRecord("q", tuple(events))], tool="a", at_least=1, at_most=1, agent=agent
    )

    assert (score.value, score.reason) == (value, reason)


def test_a_named_tool_may_be_counted_turn_by_turn() -> None:
    turns, records = [Turn("q"), Turn("q"), Turn("q")], [played(A), played(B)]

    *by_turn, total = scores("tool_used", turns, records, tool="a", scope="turn")
    (over_all,) = scores("tool_used", turns[:2], records, tool="a")

    assert [score.value for score in by_turn] == [1.0, 0.0, 0.0]
    assert total.value == pytest.approx(1 / 3)
    assert total.reason == "1 of 3 turns call a once or more."
    assert over_all.value == 1.0


@pytest.mark.parametrize(
    ("metric", "options", "field"),
    [
        ("tool_exact", {"args": "supperset"}, "args"),
        ("tool_exact", {"args_by_tool": {"a": "supperset"}}, "args_by_tool"),
        ("tool_exact", {"patterns": {"a": "["}}, "patterns"),
        ("tool_exact", {"tolerances": {"a": -1}}, "tolerances"),
        ("tool_exact", {"any_of": {"a": 1}}, "any_of"),
        ("tool_exact", {"scope": "all"}, "scope"),
        ("tool_used", {"tool": "a", "at_most": 0}, "at_most"),
        ("tool_used", {"tool": "a", "at_least": -1}, "at_least"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(metric: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_metric(Criterion(metric, 1.0, options))

    assert caught.value.field == f"{metric}.{field}"
