"""ADK's new form: what is read, what an edit changes, and what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats import (
    case_from_json,
    case_from_text,
    case_to_json,
    dump_evalset,
    load_evalset,
    read_evalset,
    shown_extra,
    write_evalset,
)
from evaldesk.model import Case, EvalSet, Expected, SessionInit, ToolCall, Turn

EVENTS = {
    "invocation_events": [
        {
            "author": "agent",
            "content": {
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "let me roll"},
                    {"function_call": {"id": "c1", "args": {"sides": 6}, "name": "roll"}},
                    {"function_call": {"id": "c2", "args": {}, "name": "check"}},
                ],
                "role": "model",
            },
            "usage_metadata": {"prompt_token_count": 3},
        },
        {
            "author": "agent",
            "content": {
                "parts": [
                    {"function_response": {"id": "c1", "name": "roll", "response": {"result": 4}}},
                    {"function_response": {"id": "c2", "name": "check", "response": {"result": "no"}}},
                ],
                "role": "user",
            },
        },
        {"author": "agent", "model_version": "m"},
    ]
}


def _set(turn: dict[str, Any], **case: Any) -> dict[str, Any]:
    conversation = [{"user_content": {"parts": [{"text": "hi"}], "role": "user"}, **turn}]
    return {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation": conversation, **case}]}


def _read(value: Any) -> EvalSet:
    return read_evalset(json.dumps(value).encode(), source="s.evalset.json")


def _read_turn(turn: dict[str, Any]) -> Turn:
    return _read(_set(turn)).cases[0].turns[0]


def _written_turn(turn: Turn) -> Any:
    written = write_evalset(EvalSet("s", cases=(Case("c", (turn,)),)))
    return json.loads(written)["eval_cases"][0]["conversation"][0]


def _golden_sets(shared: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((shared / "golden" / "adk_metrics.json").read_bytes())["eval_sets"]
    return found


def test_a_clean_set_is_written_byte_for_byte_as_adk_writes_it(shared: Path) -> None:
    # ADK drops explicit nulls and an empty state; we give both back as they stood.
    ours = {"nulls_everywhere", "session_input_empty_state_dropped"}
    cases = [case for case in _golden_sets(shared) if "written_file" in case["adk"] and case["id"] not in ours]

    written = {case["id"]: write_evalset(_read(case["json"])).decode() for case in cases}

    assert written == {case["id"]: case["adk"]["written_file"] for case in cases}
    assert len(written) > 5


def test_what_adk_refuses_is_kept_as_it_is_or_refused(shared: Path) -> None:
    refused = [case for case in _golden_sets(shared) if "error" in case["adk"]]

    for case in refused:
        try:
            evalset = _read(case["json"])
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

    evalset = _read({"evalSetId": "s", "evalCases": [case]})

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
def test_not_asserted_is_told_from_no_tool_may_be_called(turn: dict[str, Any], calls: tuple[str, ...] | None) -> None:
    read = _read_turn(turn)

    found = read.expected.tool_calls
    assert (None if found is None else tuple(call.name for call in found)) == calls
    assert _written_turn(read) == {"user_content": {"parts": [{"text": "hi"}], "role": "user"}, **turn}


@pytest.mark.parametrize("calls", [None, (), (ToolCall("f"),)], ids=["not_asserted", "none_allowed", "one"])
@pytest.mark.parametrize("messages", [(), (("a", "x"),)], ids=["silent", "speaking"])
@pytest.mark.parametrize(
    "data",
    [None, {}, {"tool_uses": [{"name": "g", "id": None}], "tool_responses": []}, EVENTS],
    ids=["new", "empty", "uses", "events"],
)
def test_every_change_of_what_is_asserted_survives_the_file(
    data: Any, calls: tuple[ToolCall, ...] | None, messages: tuple[tuple[str, str], ...]
) -> None:
    turn = _read_turn({} if data is None else {"intermediate_data": data})
    edited = replace(turn, expected=replace(turn.expected, tool_calls=calls, intermediate=messages))

    again = _read_turn(_written_turn(edited))

    assert again.expected.tool_calls == calls
    assert again.expected.intermediate == messages


def test_a_reference_is_none_unless_the_answer_has_text() -> None:
    answers: list[Any] = [None, {}, {"parts": []}, {"parts": [{"text": None}]}, {"parts": [{"text": ""}]}]

    references = [_read_turn({"final_response": answer}).expected.reference for answer in answers]

    assert references == [None, None, None, None, ""]


def test_several_text_parts_are_joined_as_adk_joins_them(shared: Path) -> None:
    golden = json.loads((shared / "golden" / "adk_metrics.json").read_bytes())["final_response_text"]

    for case in golden:
        found = _read_turn({"final_response": case["content"]}).expected.reference or ""
        assert found == case["adk"]["text"], case["id"]


def test_editing_a_text_keeps_pictures_thoughts_and_roles() -> None:
    picture = {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}
    query = {"role": "user", "parts": [picture, {"text": "what is this?", "video_metadata": None}]}
    answer = {"parts": [{"text": "hm", "thought": True}, {"text": "a cat"}], "role": None}
    turn = _read_turn({"user_content": query, "final_response": answer})
    assert (turn.query, turn.expected.reference) == ("what is this?", "hm\na cat")

    edited = replace(turn, query="and this?", expected=replace(turn.expected, reference="hm\na dog"))

    assert _written_turn(edited) == {
        "user_content": {"role": "user", "parts": [picture, {"text": "and this?", "video_metadata": None}]},
        "final_response": {"parts": [{"text": "hm", "thought": True}, {"text": "a dog"}], "role": None},
    }


def test_taking_a_reference_away_keeps_what_is_not_text() -> None:
    call = {"function_call": {"name": "ask", "args": {}}}
    turn = _read_turn({"final_response": {"parts": [{"text": "x"}, call], "role": "model"}})

    written = _written_turn(replace(turn, expected=replace(turn.expected, reference=None)))

    assert written["final_response"] == {"parts": [call], "role": "model"}


def test_editing_one_recorded_call_leaves_the_other_events_alone() -> None:
    turn = _read_turn({"intermediate_data": EVENTS})
    assert turn.expected.intermediate == (("agent", "let me roll"),)
    roll, check = turn.expected.tool_calls or ()

    edited = replace(turn, expected=replace(turn.expected, tool_calls=(replace(roll, args={"sides": 20}), check)))

    events = json.loads(json.dumps(EVENTS).replace('"sides": 6', '"sides": 20'))
    assert _written_turn(edited)["intermediate_data"] == events


def test_removing_a_recorded_call_removes_its_result_with_it() -> None:
    turn = _read_turn({"intermediate_data": EVENTS})
    _, check = turn.expected.tool_calls or ()

    edited = replace(turn, expected=replace(turn.expected, tool_calls=(check,)))

    text = json.dumps(_written_turn(edited))
    assert "c1" not in text
    assert text.count("c2") == 2


def test_adding_a_call_to_events_puts_it_after_the_one_before_it() -> None:
    turn = _read_turn({"intermediate_data": EVENTS})
    calls = (*(turn.expected.tool_calls or ()), ToolCall("again", {"n": 1}))

    events = _written_turn(replace(turn, expected=replace(turn.expected, tool_calls=calls)))["intermediate_data"]

    parts = events["invocation_events"][0]["content"]["parts"]
    assert [part["function_call"]["name"] for part in parts if "function_call" in part] == ["roll", "check", "again"]


def test_no_longer_asserting_recorded_calls_keeps_the_results_of_tools() -> None:
    turn = _read_turn({"intermediate_data": EVENTS})

    data = _written_turn(replace(turn, expected=replace(turn.expected, tool_calls=None)))["intermediate_data"]

    assert [response["id"] for response in data["tool_responses"]] == ["c1", "c2"]
    assert "tool_uses" not in data


def test_an_edit_that_python_calls_equal_is_still_an_edit() -> None:
    turn = _read_turn({"intermediate_data": {"toolUses": [{"args": {"n": 1}, "name": "f", "id": None}]}})
    call = (turn.expected.tool_calls or ())[0]

    edited = replace(turn, expected=replace(turn.expected, tool_calls=(replace(call, args={"n": True}),)))

    assert _written_turn(edited)["intermediate_data"] == {"toolUses": [{"args": {"n": True}, "name": "f", "id": None}]}


def test_unknown_keys_stay_at_their_level_through_an_edit() -> None:
    raw = _set(
        {"app_details": {"x": 1}, "intermediate_data": {"tool_uses": [{"name": "f", "args": {}, "why": 1}], "note": 2}},
        session_input={"app_name": "a", "user_id": "u", "state": {}, "session_id": "pinned"},
        labels={"team": "x"},
        rubrics=None,
    )
    raw["owner"] = "me"
    evalset = _read(raw)
    case = evalset.cases[0]
    assert shown_extra(evalset.extra) == {"owner": "me"}
    assert shown_extra(case.extra) == {"labels": {"team": "x"}}

    turn = replace(case.turns[0], query="changed")
    session = replace(case.initial_session or SessionInit(), state={"k": 1})
    edited = replace(evalset, cases=(replace(case, turns=(turn,), initial_session=session, tags=("new",)),))

    wanted = json.loads(json.dumps(raw).replace('"hi"', '"changed"').replace('"state": {}', '"state": {"k": 1}'))
    wanted["eval_cases"][0]["tags"] = ["new"]
    assert json.loads(write_evalset(edited)) == wanted


def test_a_key_called_like_our_own_note_is_kept() -> None:
    raw = _set({}, **{"$form": {"theirs": 1}})

    assert json.loads(write_evalset(_read(raw))) == raw


def test_tags_that_are_not_a_list_of_texts_are_somebody_elses() -> None:
    raw = _set({}, tags={"a": 1})
    evalset = _read(raw)

    assert evalset.cases[0].tags == ()
    assert json.loads(write_evalset(evalset)) == raw


def test_a_scenario_is_kept_as_it_stands() -> None:
    scenario = {"starting_prompt": "p", "conversation_plan": "q", "user_persona": "NOVICE", "more": [1]}
    raw = {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation_scenario": scenario}]}
    evalset = _read(raw)

    assert (evalset.cases[0].scenario, evalset.cases[0].turns) == (scenario, ())
    assert json.loads(write_evalset(evalset)) == raw


WRONG: dict[str, tuple[Any, str, str]] = {
    "set_without_cases": ({"eval_set_id": "s"}, "eval_cases", "expected a list, but it is missing"),
    "misspelled_cases": ({"eval_set_id": "s", "eval_case": []}, "eval_case", "did you mean 'eval_cases'?"),
    "no_set_id": ({"eval_cases": []}, "eval_set_id", "expected a string, but it is missing"),
    "cases_object": ({"eval_set_id": "s", "eval_cases": {}}, "eval_cases", "expected a list, got an object"),
    "case_text": ({"eval_set_id": "s", "eval_cases": ["x"]}, "eval_cases[0]", "expected an object, got a string"),
    "id_number": (_set({}, eval_id=3), "eval_cases[0].eval_id", "expected a string, got the number 3"),
    "both": (_set({}, conversation_scenario={}), "eval_cases[0]", "either a conversation or a conversation_scenario"),
    "neither": (_set({}, conversation=None), "eval_cases[0]", "found neither"),
    "misspelled_conversation": (
        {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "converstion": []}]},
        "eval_cases[0].converstion",
        "did you mean 'conversation'?",
    ),
    "no_user_content": (
        {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation": [{}]}]},
        "eval_cases[0].conversation[0].user_content",
        "expected the user's message, an object with parts, but it is missing",
    ),
    "misspelled_answer": (
        _set({"final_respnse": {}}),
        "eval_cases[0].conversation[0].final_respnse",
        "unknown key 'final_respnse'; did you mean 'final_response'?",
    ),
    "misspelled_uses": (
        _set({"intermediate_data": {"tool_use": []}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_use",
        "did you mean 'tool_uses'?",
    ),
    "uses_object": (
        _set({"intermediate_data": {"tool_uses": {"name": "f"}}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_uses",
        "expected a list, got an object",
    ),
    "call_without_name": (
        _set({"intermediate_data": {"tool_uses": [{"args": {}}]}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_uses[0].name",
        "expected a string, but it is missing",
    ),
    "args_text": (
        _set({"intermediate_data": {"tool_uses": [{"name": "f", "args": "{}"}]}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_uses[0].args",
        "expected an object, got a string",
    ),
    "text_number": (
        _set({"final_response": {"parts": [{"text": 3}]}}),
        "eval_cases[0].conversation[0].final_response.parts[0].text",
        "expected a string, got the number 3",
    ),
    "message_shape": (
        _set({"intermediate_data": {"intermediate_responses": [{"author": "a"}]}}),
        "eval_cases[0].conversation[0].intermediate_data.intermediate_responses[0]",
        "expected a list of an author and a list of parts, got an object",
    ),
    "event_author": (
        _set({"intermediate_data": {"invocation_events": [{}]}}),
        "eval_cases[0].conversation[0].intermediate_data.invocation_events[0].author",
        "expected a string, got null",
    ),
    "state_list": (
        _set({}, session_input={"app_name": "a", "user_id": "u", "state": []}),
        "eval_cases[0].session_input.state",
        "expected an object, got a list",
    ),
    "twice": (
        _set({}, evalId="d"),
        "eval_cases[0].evalId",
        "the same key is there twice, as eval_id and as evalId",
    ),
    "set_id_twice": ({"eval_set_id": "s", "evalSetId": "t", "eval_cases": []}, "evalSetId", "there twice"),
}


@pytest.mark.parametrize(("value", "path", "reason"), WRONG.values(), ids=WRONG)
def test_a_new_file_that_is_wrong_says_where_and_what_was_wanted(value: Any, path: str, reason: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_evalset(json.dumps(value, indent=1).encode(), source="s.evalset.json")

    assert refused.value.path == path
    assert reason in refused.value.reason
    assert refused.value.line is not None
    assert "old" not in refused.value.reason


def test_the_line_of_an_error_is_that_of_the_value() -> None:
    text = json.dumps(_set({"final_response": {"parts": [{"text": 3}]}}), indent=2)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if '"text": 3' in content)

    with pytest.raises(FormatError) as refused:
        read_evalset(text.encode(), source="calc.evalset.json")

    assert refused.value.line == line
    assert str(refused.value).startswith(f"calc.evalset.json:{line}:")


def test_a_file_keeps_its_indent_and_last_newline() -> None:
    data = (json.dumps(_set({}), indent=4, ensure_ascii=False) + "\n").encode()

    assert write_evalset(read_evalset(data, source="s.evalset.json")) == data


def test_a_file_from_windows_keeps_its_line_ends() -> None:
    data = (json.dumps(_set({}, note="two\r\nlines"), indent=2) + "\n").replace("\n", "\r\n").encode()

    assert write_evalset(read_evalset(data, source="s.evalset.json")) == data


def test_a_set_made_here_is_written_as_adk_writes_its_own() -> None:
    call = ToolCall("roll", {"sides": 6}, "c1")
    expected = Expected((call,), (("agent", "rolling"),), "a 4 — 四")
    evalset = EvalSet("s", cases=(Case("c", (Turn("roll", expected), Turn("bye", Expected(())))),))

    written = write_evalset(evalset).decode()

    assert '"tool_uses": []' in written
    assert "四" in written
    assert not written.endswith("\n")
    first = json.loads(written)["eval_cases"][0]["conversation"][0]
    assert first == {
        "user_content": {"parts": [{"text": "roll"}], "role": "user"},
        "final_response": {"parts": [{"text": "a 4 — 四"}], "role": "model"},
        "intermediate_data": {
            "tool_uses": [{"id": "c1", "args": {"sides": 6}, "name": "roll"}],
            "intermediate_responses": [["agent", [{"text": "rolling"}]]],
        },
    }


def test_a_file_is_loaded_and_dumped_by_path(tmp_path: Path) -> None:
    path = tmp_path / "s.evalset.json"
    evalset = EvalSet("s", cases=(Case("c", (Turn("hi"),)),))
    path.write_text("{}")
    path.chmod(0o640)

    dump_evalset(evalset, path)

    assert load_evalset(path) == evalset
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.evalset.json"]


def test_the_raw_view_of_a_case_is_what_stands_in_its_file() -> None:
    raw = _set({"app_details": {"x": 1}}, tags=["a"], odd=1)["eval_cases"][0]

    case = case_from_json(raw, "case")

    assert case_to_json(case) == raw
    assert case_from_text(json.dumps(raw), "case") == case


def test_an_error_in_the_raw_view_names_line_and_column() -> None:
    with pytest.raises(FormatError) as refused:
        case_from_text('{"eval_id": "c",\n "conversation": 3}', "case")

    assert (refused.value.line, refused.value.column, refused.value.path) == (2, 18, "conversation")
