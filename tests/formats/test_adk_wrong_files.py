"""ADK's new form: what is refused and where, and the form that a file keeps."""

from __future__ import annotations

import json
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
    write_evalset,
)
from evaldesk.model import Case, EvalSet, Expected, ToolCall, Turn

from .adk_sets import set_of

WRONG: dict[str, tuple[Any, str, str]] = {
    "set_without_cases": ({"eval_set_id": "s"}, "eval_cases", "expected a list, but it is missing"),
    "misspelled_cases": ({"eval_set_id": "s", "eval_case": []}, "eval_case", "did you mean 'eval_cases'?"),
    "no_set_id": ({"eval_cases": []}, "eval_set_id", "expected a string, but it is missing"),
    "cases_object": ({"eval_set_id": "s", "eval_cases": {}}, "eval_cases", "expected a list, got an object"),
    "case_text": ({"eval_set_id": "s", "eval_cases": ["x"]}, "eval_cases[0]", "expected an object, got a string"),
    "id_number": (set_of({}, eval_id=3), "eval_cases[0].eval_id", "expected a string, got the number 3"),
    "both": (set_of({}, conversation_scenario={}), "eval_cases[0]", "either a conversation or a conversation_scenario"),
    "neither": (set_of({}, conversation=None), "eval_cases[0]", "found neither"),
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
        set_of({"final_respnse": {}}),
        "eval_cases[0].conversation[0].final_respnse",
        "unknown key 'final_respnse'; did you mean 'final_response'?",
    ),
    "misspelled_uses": (
        set_of({"intermediate_data": {"tool_use": []}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_use",
        "did you mean 'tool_uses'?",
    ),
    "uses_object": (
        set_of({"intermediate_data": {"tool_uses": {"name": "f"}}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_uses",
        "expected a list, got an object",
    ),
    "call_without_name": (
        set_of({"intermediate_data": {"tool_uses": [{"args": {}}]}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_uses[0].name",
        "expected a string, but it is missing",
    ),
    "args_text": (
        set_of({"intermediate_data": {"tool_uses": [{"name": "f", "args": "{}"}]}}),
        "eval_cases[0].conversation[0].intermediate_data.tool_uses[0].args",
        "expected an object, got a string",
    ),
    "text_number": (
        set_of({"final_response": {"parts": [{"text": 3}]}}),
        "eval_cases[0].conversation[0].final_response.parts[0].text",
        "expected a string, got the number 3",
    ),
    "message_shape": (
        set_of({"intermediate_data": {"intermediate_responses": [{"author": "a"}]}}),
        "eval_cases[0].conversation[0].intermediate_data.intermediate_responses[0]",
        "expected a list of an author and a list of parts, got an object",
    ),
    "event_author": (
        set_of({"intermediate_data": {"invocation_events": [{}]}}),
        "eval_cases[0].conversation[0].intermediate_data.invocation_events[0].author",
        "expected a string, got null",
    ),
    "state_list": (
        set_of({}, session_input={"app_name": "a", "user_id": "u", "state": []}),
        "eval_cases[0].session_input.state",
        "expected an object, got a list",
    ),
    "twice": (
        set_of({}, evalId="d"),
        "eval_cases[0].evalId",
        "the same key is there twice, as eval_id and as evalId",
    ),
    "set_id_twice": ({"eval_set_id": "s", "evalSetId": "t", "eval_cases": []}, "evalSetId", "there twice"),
}


@pytest.mark.parametrize(("value", "path", "reason"), WRONG.values(), ids=WRONG)
def test_a_faulty_new_file_names_place_and_wanted_value(value: Any, path: str, reason: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_evalset(json.dumps(value, indent=1).encode(), source="s.evalset.json")

    assert refused.value.path == path
    assert reason in refused.value.reason
    assert refused.value.line is not None
    assert "old" not in refused.value.reason


def test_the_line_of_an_error_is_that_of_the_value() -> None:
    text = json.dumps(set_of({"final_response": {"parts": [{"text": 3}]}}), indent=2)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if '"text": 3' in content)

    with pytest.raises(FormatError) as refused:
        read_evalset(text.encode(), source="calc.evalset.json")

    assert refused.value.line == line
    assert str(refused.value).startswith(f"calc.evalset.json:{line}:")


def test_a_file_keeps_its_indent_and_last_newline() -> None:
    data = (json.dumps(set_of({}), indent=4, ensure_ascii=False) + "\n").encode()

    assert write_evalset(read_evalset(data, source="s.evalset.json")) == data


def test_a_file_from_windows_keeps_its_line_ends() -> None:
    data = (json.dumps(set_of({}, note="two\r\nlines"), indent=2) + "\n").replace("\n", "\r\n").encode()

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


def test_the_raw_view_of_a_case_is_the_text_of_its_file() -> None:
    raw = set_of({"app_details": {"x": 1}}, tags=["a"], odd=1)["eval_cases"][0]

    case = case_from_json(raw, "case")

    assert case_to_json(case) == raw
    assert case_from_text(json.dumps(raw), "case") == case


def test_an_error_in_the_raw_view_names_line_and_column() -> None:
    with pytest.raises(FormatError) as refused:
        case_from_text('{"eval_id": "c",\n "conversation": 3}', "case")

    assert (refused.value.line, refused.value.column, refused.value.path) == (2, 18, "conversation")
