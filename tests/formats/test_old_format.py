"""ADK's old forms: read, written back, and moved into the new form."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import FormatError
from evaldesk.formats import (
    case_from_json,
    case_to_json,
    evalset_format,
    format_of,
    losses,
    read_evalset,
    write_evalset,
)
from evaldesk.model import Case, EvalSet, Expected, SessionInit, ToolCall, Turn

OLD: list[Any] = [
    {
        "name": "one",
        "data": [
            {
                "query": "q1",
                "expected_tool_use": [{"tool_name": "f", "tool_input": {"a": 1}, "mock_tool_output": 3}],
                "expected_intermediate_agent_responses": [{"author": "sub", "text": "working", "when": 1}],
                "reference": "r1",
                "note": "mine",
            },
            {"query": "q2", "expected_tool_use": [], "reference": None},
            {"query": "q3"},
        ],
        "initial_session": {"state": {"k": "v"}, "app_name": "app", "user_id": "u"},
        "initial_state": {"session": {}},
    }
]


def _read(value: Any, source: str = "tests/calc.evalset.json") -> EvalSet:
    return read_evalset(json.dumps(value).encode(), source=source)


def test_an_old_list_is_read_with_the_file_as_its_name() -> None:
    evalset = _read(OLD)

    case = evalset.cases[0]
    assert (evalset.id, evalset_format(evalset), case.id) == ("calc", "adk-old", "one")
    assert case.initial_session == SessionInit("app", "u", {"k": "v"})
    assert [turn.query for turn in case.turns] == ["q1", "q2", "q3"]
    assert [turn.expected.reference for turn in case.turns] == ["r1", None, None]
    calls = [turn.expected.tool_calls for turn in case.turns]
    assert calls == [(ToolCall("f", {"a": 1}, extra={"mock_tool_output": 3}),), (), None]


def test_a_flat_list_is_one_case_called_after_the_file() -> None:
    evalset = _read(OLD[0]["data"], "tests/roll_die.test.json")

    assert (evalset.id, evalset_format(evalset)) == ("roll_die", "adk-flat")
    assert [case.id for case in evalset.cases] == ["roll_die"]
    assert len(evalset.cases[0].turns) == 3


@pytest.mark.parametrize("value", [OLD, OLD[0]["data"]], ids=["old", "flat"])
def test_an_old_file_is_written_back_with_every_key_in_its_place(value: Any) -> None:
    evalset = _read(value)

    written = write_evalset(evalset, evalset_format(evalset))

    assert written.decode() == json.dumps(value, indent=2)


def test_an_edit_of_an_old_file_changes_only_the_edited_value() -> None:
    evalset = _read(OLD)
    case = evalset.cases[0]
    call = replace((case.turns[0].expected.tool_calls or ())[0], args={"a": 2})
    expected = replace(case.turns[0].expected, tool_calls=(call,), intermediate=(("sub", "working"), ("sub", "still")))
    turns = (replace(case.turns[0], expected=expected), *case.turns[1:])

    written = write_evalset(replace(evalset, cases=(replace(case, turns=turns),)), "adk-old")

    wanted = json.loads(json.dumps(OLD).replace('"a": 1', '"a": 2'))
    wanted[0]["data"][0]["expected_intermediate_agent_responses"].append({"author": "sub", "text": "still"})
    assert json.loads(written) == wanted


def test_in_the_new_form_the_unknown_turn_keys_move_to_the_case_which_adk_keeps() -> None:
    case = json.loads(write_evalset(_read(OLD)))["eval_cases"][0]

    assert case["old_turn_keys"] == [{"turn": 0, "keys": {"note": "mine"}, "calls": {"0": {"mock_tool_output": 3}}}]
    assert case["initial_state"] == {"session": {}}
    assert set(case["conversation"][0]) == {"user_content", "final_response", "intermediate_data"}
    assert case["conversation"][0]["intermediate_data"] == {
        "tool_uses": [{"args": {"a": 1}, "name": "f"}],
        "intermediate_responses": [["sub", [{"text": "working"}]]],
    }
    assert case["conversation"][1]["intermediate_data"] == {"tool_uses": []}
    assert "intermediate_data" not in case["conversation"][2]


def test_the_conversion_agrees_with_adks_own() -> None:
    for example in golden("adk_metrics")["old_schema"]:
        if "error" in example["adk"]:
            with pytest.raises(FormatError):
                _read(example["old"])
            continue
        ours = read_evalset(write_evalset(_read(example["old"])), source="set")
        text = json.dumps(example["adk"]).replace('"<time>"', "0.0")
        theirs = read_evalset(text.encode(), source="set")
        assert [_plain(case) for case in ours.cases] == [_plain(case) for case in theirs.cases], example["id"]


def test_values_that_the_old_form_cannot_hold_are_named() -> None:
    scenario = Case("talk", scenario={"starting_prompt": "p", "conversation_plan": "q"})
    picture = {"parts": [{"inline_data": {"mime_type": "x", "data": ""}}, {"text": "what?"}], "role": "user"}
    turn: dict[str, Any] = {
        "user_content": picture,
        "intermediate_data": {"tool_uses": [], "tool_responses": [{"name": "f"}]},
    }
    seen = case_from_json({"eval_id": "seen", "conversation": [turn]}, "case")
    evalset = EvalSet("s", "My set", "What it is", (scenario, seen), {"owner": "me"})

    lost = losses(evalset, "adk-old")

    assert lost == (
        "the set's 'name': the old form has cases only",
        "the set's 'description': the old form has cases only",
        "the set's 'owner': the old form has cases only",
        "case 'talk' is left out: the old form has no conversation scenarios",
        "case 'seen', turn 1: parts of messages that are not text",
        "case 'seen', turn 1: recorded results of tools and the data recorded with them",
    )
    assert [case["name"] for case in json.loads(write_evalset(evalset, "adk-old"))] == ["seen"]


def test_values_without_a_key_in_the_old_form_become_further_keys_and_come_back() -> None:
    expected = Expected((ToolCall("f", {"a": 1}, "call-1"),), (), "r")
    case = Case("c", (Turn("q", expected),), None, SessionInit("a"), {"end": 1}, ({"rubric_id": "r"},), ("x",))
    evalset = EvalSet("s", cases=(case,))

    again = read_evalset(write_evalset(evalset, "adk-old"), source="s.json").cases[0]

    assert losses(evalset, "adk-old") == ()
    assert (again.turns, again.final_state, again.rubrics, again.tags) == (
        case.turns,
        case.final_state,
        case.rubrics,
        case.tags,
    )


def test_the_flat_form_holds_one_conversation_only() -> None:
    case = Case("c", (Turn("q"),), initial_session=SessionInit("a"), tags=("x",))
    evalset = EvalSet("s", cases=(case,))

    assert losses(evalset, "adk-flat") == (
        "case 'c' has an initial session, which the flat form cannot hold",
        "case 'c' has tags, which the flat form cannot hold",
        "case 'c' has a name other than that of its set, 's', which the flat form cannot hold",
    )
    two = replace(evalset, cases=(case, case))
    assert losses(two, "adk-flat") == ("the flat form holds exactly one case; this set has 2",)
    with pytest.raises(FormatError, match="exactly one conversation"):
        write_evalset(two, "adk-flat")


def test_a_case_of_an_old_file_is_shown_raw_in_its_own_form() -> None:
    case = _read(OLD).cases[0]

    raw = case_to_json(case)

    assert raw == OLD[0]
    assert case_from_json(raw, "case") == case


WRONG: dict[str, tuple[Any, str, str]] = {
    "query_missing": ([{"query": "a"}, {"reference": "b"}], "[1].query", "expected a string, but it is missing"),
    "name_missing": ([{"data": []}], "[0].name", "expected a string, but it is missing"),
    "misspelled": (
        [{"query": "a", "expected_tool_uses": []}],
        "[0].expected_tool_uses",
        "did you mean 'expected_tool_use'",
    ),
    "uses_text": (
        [{"name": "c", "data": [{"query": "a", "expected_tool_use": "f"}]}],
        "[0].data[0].expected_tool_use",
        "expected a list, got a string",
    ),
    "input_missing": (
        [{"query": "a", "expected_tool_use": [{"tool_name": "f"}]}],
        "[0].expected_tool_use[0].tool_input",
        "expected an object, but it is missing",
    ),
    "message_text": (
        [{"query": "a", "expected_intermediate_agent_responses": [{"author": "x"}]}],
        "[0].expected_intermediate_agent_responses[0].text",
        "expected a string, but it is missing",
    ),
    "mixed": ([{"name": "c", "data": []}, {"query": "a"}], "[1].name", "expected a string, but it is missing"),
}


@pytest.mark.parametrize(("value", "path", "reason"), WRONG.values(), ids=WRONG)
def test_a_faulty_old_file_names_place_and_wanted_value(value: Any, path: str, reason: str) -> None:
    with pytest.raises(FormatError) as refused:
        _read(value)

    assert refused.value.path == path
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("value", "file_format"),
    [
        ([], "adk-old"),
        (OLD, "adk-old"),
        (OLD[0]["data"], "adk-flat"),
        ({"eval_set_id": 3}, "adk"),
        ({"evalCases": []}, "adk"),
    ],
    ids=["empty", "old", "flat", "broken_new", "camel"],
)
def test_the_format_is_recognised_by_shape_before_anything_is_read(value: Any, file_format: str) -> None:
    assert format_of(json.dumps(value).encode(), "x.json") == file_format


REFUSED = {
    "session": ({"id": "1", "app_name": "a", "user_id": "u", "state": {}, "events": []}, "this is a session export"),
    "camel_session": ({"id": "1", "appName": "a", "userId": "u", "events": []}, "this is a session export"),
    "config": ({"criteria": {}}, "this is an eval config"),
    "result": (
        {"eval_set_result_id": "r", "eval_set_id": "s", "eval_case_results": []},
        "this is a result file of an eval run",
    ),
    "double_encoded_result": (
        json.dumps({"eval_case_results": []}),
        "this is a result file of an eval run (an older one",
    ),
    "one_case": ({"eval_id": "c", "conversation": []}, "this is one case alone"),
    "one_old_case": (OLD[0], "this is one case of the old form alone"),
    "one_turn": (OLD[0]["data"][0], "this is one turn of the old form alone"),
    "new_cases": ([{"eval_id": "c", "conversation": []}], "this is a list of cases of the new form"),
    "events": ([{"author": "user", "content": {}}], "this is a list of events"),
    "numbers": ([1, 2], "this is not an eval set but a list without objects"),
    "empty": ({}, "this is not an eval set: an empty object"),
    "strange": ({"a": 1, "b": 2}, "this is not an eval set: an object with the keys 'a', 'b'"),
    "strange_list": ([{"a": 1}], "this is not an eval set: its first item has neither data nor query"),
    "number": (3, "this is not an eval set but a bare value"),
    "text": ("hello", "this is not an eval set but a bare string"),
    "json_in_text": (json.dumps([1]), "this is JSON inside a JSON string"),
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_another_kind_of_file_is_refused_by_its_kind(value: Any, reason: str) -> None:
    with pytest.raises(FormatError) as refused:
        _read(value)

    assert refused.value.reason.startswith(reason)


def _plain(case: Case) -> tuple[Any, ...]:
    turns = [
        # ADK makes an absent reference an empty one and unasserted calls none; those two we keep apart.
        (turn.query, turn.expected.reference or "", turn.expected.tool_calls or (), turn.expected.intermediate)
        for turn in case.turns
    ]
    return case.id, turns, case.initial_session
