"""Multi-turn cases of BFCL, whose questions and expected calls are two files."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.integrations.bfcl.cases import Bfcl, parse_call
from evaldesk.model import ToolCall

SAMPLE = (Path(__file__).parents[2] / "formats/exchange_samples" / "bfcl.jsonl").read_bytes()


def _read(*rows: dict[str, Any], source: str = "q.json") -> Imported:
    data = b"\n".join(json.dumps(row).encode() for row in rows)
    assert Bfcl.recognises(data, source)
    return Bfcl.read(data, source=source)


QUESTION = {"id": "q", "question": [[{"role": "user", "content": "Go."}]]}


def test_the_questions_alone_name_the_missing_file() -> None:
    source = "BFCL_v4_multi_turn_base.json"

    found = _read(QUESTION, source=source)

    assert found.evalset
    assert found.evalset.cases[0].turns[0].expected.tool_calls is None
    assert found.understood == (
        "No expected calls: BFCL keeps them in possible_answer_BFCL_v4_multi_turn_base.json. To assert them, put both "
        "into one file, such as `cat BFCL_v4_multi_turn_base.json possible_answer_BFCL_v4_multi_turn_base.json > "
        "both.jsonl`, and import that.",
    )


def test_the_answers_alone_are_refused_with_the_next_step() -> None:
    answers = {"id": "q", "ground_truth": [["go()"]]}

    with pytest.raises(FormatError) as caught:
        _read(answers, source="possible_answer_BFCL_v4_multi_turn_base.json")

    assert "`cat BFCL_v4_multi_turn_base.json possible_answer_BFCL_v4_multi_turn_base.json > both.jsonl`" in str(
        caught.value
    )


def test_the_functions_alone_are_refused() -> None:
    function = {"name": "add", "description": "Adds.", "parameters": {"type": "dict", "properties": {}}}

    with pytest.raises(FormatError, match="these are only functions; put them into one file with the questions"):
        _read(function, source="func_doc_math_api.json")


def test_turns_state_and_calls_of_a_case() -> None:
    found = Bfcl.read(SAMPLE, source="both.jsonl")

    assert found.evalset
    case, other = found.evalset.cases
    assert [(turn.query, turn.expected.tool_calls) for turn in case.turns] == [
        ("Move a to b.", (ToolCall("mv", {"source": "a", "destination": "b"}), ToolCall("cd", {"0": ".."}))),
        ("Sort it.", (ToolCall("sort", {"file_name": "b"}),)),
        ("", ()),
    ]
    assert (dict(case.initial_state), set(case.extra)) == (
        {"Files": {"root": {"a": "x"}}},
        {"path", "involved_classes", "question"},
    )
    assert other.turns[0].expected.tool_calls is None
    assert found.understood == ("1 case of 2 without expected calls: nothing is asserted.",)
    assert found.kept == (
        "The documentation of 1 function, with the eval set.",
        "1 expected call with arguments by position, named 0, 1, …: add the lines of the func_doc files to name them.",
    )


@pytest.mark.parametrize(
    ("rows", "line", "said"),
    [
        ([QUESTION, {"id": "q", "ground_truth": []}], 2, "ground_truth: calls for 0 turns, but the question has 1"),
        ([QUESTION, QUESTION], 2, "id: 'q' is there already"),
        ([QUESTION, {"id": "x"}], 2, "this line has neither question nor ground_truth"),
        ([{"id": "q", "question": [["x"]]}], 1, "question[0][0]: expected an object, got a string"),
        ([{"id": 1, "question": []}], 1, "id: expected a string, got the number 1"),
    ],
)
def test_a_fault_is_named_with_its_line(rows: list[dict[str, Any]], line: int, said: str) -> None:
    with pytest.raises(FormatError) as caught:
        _read(*rows)

    assert (caught.value.line, said in str(caught.value)) == (line, True)


def test_a_call_that_is_none_and_answers_without_a_question_are_left_out() -> None:
    found = _read(QUESTION, {"id": "q", "ground_truth": [["open(", "f(1)"]]}, {"id": "z", "ground_truth": [[]]})

    assert found.evalset
    assert found.evalset.cases[0].turns[0].expected.tool_calls == (ToolCall("f", {"0": 1}),)
    assert found.refused == (
        "Left out: an expected call whose values are not plain, at line 2: ground_truth[0][0].",
        "Left out: expected calls of a question that is not there, at line 3.",
    )


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("f()", ToolCall("f")),
        ("a.b(x=[1, 'y', {'z': None}])", ToolCall("a.b", {"x": [1, "y", {"z": None}]})),
        ("f(x=(1, -2.5), y=True)", ToolCall("f", {"x": [1, -2.5], "y": True})),
        ("f(x=123456789012345678901234567890)", ToolCall("f", {"x": 123456789012345678901234567890})),
        ("g('p', b='q')", ToolCall("g", {"a": "p", "b": "q"})),
        ("g('p', a='q')", None),
        ("f(**{'a': 1})", None),
        ("f(x=open('/etc/passwd'))", None),
        ("f(x=b'1')", None),
        ("f(x=1e999)", None),
        ("f(x={1: 2})", None),
        ("f", None),
        ("1 + 1", None),
        ("(" * 500, None),
        ("f(" + "-" * 9000 + "1)", None),
        ("f(x='" + "a" * 30_000 + "')", None),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_call_in_python_is_data_and_never_run(text: str, call: ToolCall | None) -> None:
    assert parse_call(text, {"g": ["a", "b"]}) == call


@given(st.text(alphabet="f(),='\"[]{}:-1.eEjx \\n#*`\u00e9", max_size=40))
@settings(max_examples=50)
def test_every_text_is_a_call_or_none(text: str) -> None:
    call = parse_call(text, {})

    assert call is None or isinstance(ast.parse(text.strip(), mode="eval").body, ast.Call)
