"""`required_calls`: calls that must be made somewhere in a conversation, compared as tau2 does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.matching.required_calls import RequiredCall
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Event, Score, ToolCall, Transcript, TurnRecord

CLOSE = {"name": "close", "arguments": {"id": 7, "why": "asked"}}


def scored(required: Any, *made: dict[str, Any], key: str = "required_calls") -> Score:
    """The score of a conversation in which each of these calls of `close` is in a turn of its own."""
    turns = [TurnRecord("q", (Event("tool_call", call=ToolCall("close", args)),)) for args in made]
    case = Case("c", scenario={"conversation_plan": "Close my account."}, extra={key: required})
    (score,) = score_trial(Transcript(tuple(turns)), case, [Criterion("required_calls", 1.0)])
    return score


@pytest.mark.parametrize(
    ("compared", "made", "value"),
    [
        ({}, {"id": 7, "why": "asked"}, 1.0),
        ({}, {"id": 8, "why": "asked"}, 0.0),
        ({}, {"id": 7}, 1.0),
        ({}, {}, 1.0),
        ({}, {"id": 7, "why": "asked", "fee": 1}, 0.0),
        ({"compare_args": None}, {"id": 7, "why": "told"}, 0.0),
        ({"compare_args": ["id"]}, {"id": 7, "why": "told", "fee": 1}, 1.0),
        ({"compare_args": ["id"]}, {"why": "asked"}, 0.0),
        ({"compare_args": ["fee"]}, {"id": 8}, 1.0),
        ({"compare_args": []}, {"id": 8}, 1.0),
        ({}, {"id": 7.0, "why": "asked"}, 1.0),
    ],
    ids=[
        "the same",
        "another value",
        "one left out",
        "all left out",
        "one too many",
        "all are compared",
        "one is compared",
        "the compared one left out",
        "compared and in neither",
        "only the tool",
        "equal numbers",
    ],
)
def test_arguments_are_compared_as_tau2_compares_them(
    compared: dict[str, Any], made: dict[str, Any], value: float
) -> None:
    assert scored([CLOSE | compared], made).value == value


def test_calls_count_in_any_turn_and_order_and_for_several_required_ones() -> None:
    other = {"name": "close", "arguments": {"id": 8}, "compare_args": ["id"]}

    score = scored([CLOSE, other, CLOSE, {"name": "open"}], {"id": 8}, {"id": 9}, {"id": 7, "why": "asked"})

    assert (score.value, score.passed) == (0.75, False)
    assert score.reason == "3 of 4 required calls are made; not made: open."


def test_a_task_is_judged_by_its_actions_only_where_its_reward_asks_for_them() -> None:
    by_calls, by_database = ({"actions": [CLOSE], "reward_basis": [basis]} for basis in ("ACTION", "DB"))

    scores = [scored(criteria, {"id": 7}, key="evaluation_criteria") for criteria in (by_calls, by_database)]

    assert [score.verdict for score in scores] == ["passed", "not_applicable"]
    assert scored({"reward_basis": ["ACTION"]}, key="evaluation_criteria").value == 1.0


def test_a_conversation_without_a_call_makes_none() -> None:
    assert scored([CLOSE]).value == 0.0
    assert scored([]).reason == "No call is required."


ARGS = st.dictionaries(st.sampled_from("abc"), st.sampled_from([0, 1, True, "x", None]), max_size=3)


@given(ARGS, ARGS, st.none() | st.lists(st.sampled_from("abcd"), max_size=3))
def test_a_call_is_taken_as_by_tau2s_own_rule(wanted: dict[str, Any], made: dict[str, Any], compared: Any) -> None:
    """The rule of `Action.compare_with_tool_call`, written down once more."""
    keys = list(made) if compared is None else compared
    is_same = not keys or {k: v for k, v in made.items() if k in keys} == {k: v for k, v in wanted.items() if k in keys}

    found = RequiredCall("f", wanted, None if compared is None else tuple(compared)).is_made_by(ToolCall("f", made))

    assert found == is_same
