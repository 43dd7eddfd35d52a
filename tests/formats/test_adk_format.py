"""ADK's new form: what is read, and how it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import FormatError
from evaldesk.formats import (
    write_evalset,
)
from evaldesk.model import ToolCall

from .adk_sets import EVENTS, read, turn_of, written_turn

GOLDEN_SETS = golden("adk_metrics")["eval_sets"]


def test_a_clean_set_is_written_byte_for_byte_as_adk_writes_it() -> None:
    # ADK drops explicit nulls and an empty state; we give both back as they stood.
    ours = {"nulls_everywhere", "session_input_empty_state_dropped"}
    cases = [case for case in GOLDEN_SETS if "written_file" in case["adk"] and case["id"] not in ours]

    written = {case["id"]: write_evalset(read(case["json"])).decode() for case in cases}

    assert written == {case["id"]: case["adk"]["written_file"] for case in cases}
    assert len(written) > 5


def test_values_that_adk_refuses_are_kept_unchanged_or_refused() -> None:
    refused = [case for case in GOLDEN_SETS if "error" in case["adk"]]

    for case in refused:
        try:
            evalset = read(case["json"])
        except FormatError:
            continue
        # The one thing we repair: ADK reads the keys of the set itself in snake_case only.
        wanted = {"eval_set_id": "s", "eval_cases": []} if case["id"] == "camel_case_set_id" else case["json"]
        assert json.loads(write_evalset(evalset)) == wanted, case["id"]


def test_camel_case_is_read_at_every_level_and_kept_below_the_set() -> None:
    case = {
        "evalId": "c",
        "conversation": [
            {
                "invocationId": "i",
                "userContent": {"parts": [{"text": "q"}], "role": "user"},
                "finalResponse": {"parts": [{"text": "r"}], "role": "model"},
                "intermediateData": {
                    "toolUses": [{"name": "f", "args": {"aB": 1}}],
                    "intermediateResponses": [["a", [{"text": "x"}]]],
                },
            }
        ],
        "sessionInput": {"appName": "app", "userId": "u", "state": {"keyOne": 1}},
        "finalSessionState": {"z": 1},
    }

    evalset = read({"evalSetId": "s", "evalCases": [case]})

    turn = evalset.cases[0].turns[0]
    assert (evalset.id, evalset.cases[0].id) == ("s", "c")
    assert [(call.name, call.args) for call in turn.expected.tool_calls or ()] == [("f", {"aB": 1})]
    assert (turn.query, turn.expected.reference, turn.expected.intermediate) == ("q", "r", (("a", "x"),))
    assert evalset.cases[0].initial_state == {"keyOne": 1}
    assert evalset.cases[0].final_state == {"z": 1}
    assert json.loads(write_evalset(evalset)) == {"eval_set_id": "s", "eval_cases": [case]}


@pytest.mark.parametrize(
    ("turn", "calls"),
    [
        ({}, None),
        ({"intermediate_data": None}, None),
        ({"intermediate_data": {"intermediate_responses": [["a", [{"text": "x"}]]]}}, None),
        ({"intermediate_data": {}}, ()),
        ({"intermediate_data": {"tool_uses": []}}, ()),
        ({"intermediate_data": {"tool_uses": [], "intermediate_responses": []}}, ()),
        ({"intermediate_data": {"invocation_events": [{"author": "a"}]}}, ()),
        ({"intermediate_data": {"tool_uses": [{"name": "f"}]}}, ("f",)),
        ({"intermediate_data": EVENTS}, ("roll", "check")),
    ],
    ids=["absent", "null", "only_messages", "empty", "no_uses", "nothing", "events_none", "one", "events"],
)
def test_not_asserted_differs_from_no_tool_may_be_called(turn: dict[str, Any], calls: tuple[str, ...] | None) -> None:
    read = turn_of(turn)

    found = read.expected.tool_calls
    assert (None if found is None else tuple(call.name for call in found)) == calls
    assert written_turn(read) == {"user_content": {"parts": [{"text": "hi"}], "role": "user"}, **turn}


@pytest.mark.parametrize("calls", [None, (), (ToolCall("f"),)], ids=["not_asserted", "none_allowed", "one"])
@pytest.mark.parametrize("messages", [(), (("a", "x"),)], ids=["silent", "speaking"])
@pytest.mark.parametrize(
    "data",
    [None, {}, {"tool_uses": [{"name": "g", "id": None}], "tool_responses": []}, EVENTS],
    ids=["new", "empty", "uses", "events"],
)
def test_every_change_of_an_assertion_survives_the_file(
    data: Any, calls: tuple[ToolCall, ...] | None, messages: tuple[tuple[str, str], ...]
) -> None:
    turn = turn_of({} if data is None else {"intermediate_data": data})
    edited = replace(turn, expected=replace(turn.expected, tool_calls=calls, intermediate=messages))

    again = turn_of(written_turn(edited))

    assert again.expected.tool_calls == calls
    assert again.expected.intermediate == messages


def test_a_reference_is_none_unless_the_answer_has_text() -> None:
    answers: list[Any] = [None, {}, {"parts": []}, {"parts": [{"text": None}]}, {"parts": [{"text": ""}]}]

    references = [turn_of({"final_response": answer}).expected.reference for answer in answers]

    assert references == [None, None, None, None, ""]


def test_several_text_parts_are_joined_as_adk_joins_them() -> None:
    for case in golden("adk_metrics")["final_response_text"]:
        found = turn_of({"final_response": case["content"]}).expected.reference or ""
        assert found == case["adk"]["text"], case["id"]
