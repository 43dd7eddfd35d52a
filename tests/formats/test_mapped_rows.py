"""Rows of any data set become cases by the names of their columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.islands import island_module

from evaldesk.errors import EvaldeskError, FormatError
from evaldesk.formats.files import read_file
from evaldesk.formats.mapped_rows import ROLES, read_columns, read_mapped
from evaldesk.model import Case, Expected, ToolCall, Turn

PAGE = (Path(__file__).parents[2] / "docs/formats.md").read_text()


def cases_of(value: Any, mapping: str, source: str = "rows.json") -> tuple[Case, ...]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    evalset = read_mapped(data, source, read_columns(mapping)).evalset
    assert evalset is not None
    return tuple(evalset.cases)


ROW = {"q": "Where is order 17?", "a": "It was shipped.", "n": 3, "topic": "orders, shipping"}
WHOLE = (
    Case(
        "3",
        (Turn("Where is order 17?", Expected(reference="It was shipped.")),),
        tags=("orders", "shipping"),
    ),
)
MAPPING = "input=q,expected=a,id=n,tags=topic"


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (json.dumps([ROW]), "rows.json"),
        (json.dumps({"version": 1, "items": [ROW]}), "rows.json"),
        (json.dumps(ROW) + "\n", "rows.jsonl"),
        ('q,a,n,topic\nWhere is order 17?,It was shipped.,3,"orders, shipping"\n', "rows.csv"),
        ("q\ta\tn\ttopic\nWhere is order 17?\tIt was shipped.\t3\torders, shipping\n", "rows.tsv"),
        ("- q: Where is order 17?\n  a: It was shipped.\n  n: 3\n  topic: orders, shipping\n", "rows.yaml"),
        ("items:\n- {q: 'Where is order 17?', a: It was shipped., n: 3, topic: 'orders, shipping'}\n", "rows.yml"),
    ],
    ids=["list", "list in an object", "lines", "csv", "tsv", "yaml", "yaml in an object"],
)
def test_the_same_row_in_each_kind_of_file_is_the_same_case(data: str, source: str) -> None:
    assert cases_of(data.encode(), MAPPING, source) == WHOLE


def test_turns_calls_and_the_columns_without_a_role() -> None:
    row = {
        "in": {"messages": ["hi", "and then?"]},
        "out": ["hello", None],
        "tools": [{"name": "look", "args": {"x": 1}}],
        "meta": {"by": "ann"},
        "split": "test",
    }

    (case,) = cases_of([row], "input=in.messages,expected=out,calls=tools,metadata=meta")

    assert case.id == "row_1"
    assert case.turns == (
        Turn("hi", Expected(reference="hello")),
        Turn("and then?", Expected((ToolCall("look", {"x": 1}),))),
    )
    assert case.extra == {"split": "test", "metadata": {"by": "ann"}}


@pytest.mark.parametrize(("calls", "expected"), [(None, None), ([], ()), ("", None), ("[]", ())])
def test_no_value_is_not_asserted_and_an_empty_list_is(calls: Any, expected: Any) -> None:
    (case,) = cases_of([{"q": "hi", "c": calls}], "input=q,calls=c,expected=a")

    assert case.turns[0].expected.tool_calls == expected
    assert case.turns[0].expected.reference is None


def test_messages_expect_what_they_show() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        {"role": "assistant", "content": "It is 2."},
    ]

    (case,) = cases_of([{"m": messages, "a": "two"}], "messages=m,expected=a")

    (turn,) = case.turns
    assert [(each.name, each.args) for each in turn.expected.tool_calls or ()] == [("look", {"x": 1})]
    assert turn.expected.reference == "two"


@pytest.mark.parametrize(
    ("rows", "mapping", "words"),
    [
        ([{"q": "hi"}, {"p": "ho"}], "input=q", "[1]: the row has no 'q'"),
        ([{"q": ""}], "input=q", "[0]: the row has no 'q'"),
        ([3], "input=q", "[0]: expected an object, got the number 3"),
        ([{"q": "hi", "i": True}], "input=q,id=i", "[0].i: an id is a text or a whole number"),
        ([{"q": "hi", "t": 3}], "input=q,tags=t", "[0].t: tags are a list of texts"),
        ([{"q": ["a", "b"], "e": ["x", "y", "z"]}], "input=q,expected=e", "[0].e: 3 answers for 2 turns"),
        ([{"q": [{"role": "user", "content": "a"}]}], "input=q", "map them as messages="),
        ([{"q": "hi", "c": [{"args": {}}]}], "input=q,calls=c", "[0].c[0].name: expected a string"),
        ([], "input=q", "there is no row in the file"),
        ({"items": [{"q": "a"}]}, "input=q,rows=cases", "there is no 'cases'"),
        ([{"m": []}], "messages=m", "there is no message of a user first"),
    ],
)
def test_a_row_that_is_no_case_is_refused_with_its_place(rows: Any, mapping: str, words: str) -> None:
    with pytest.raises(FormatError) as refusal:
        cases_of(rows, mapping)

    assert words in str(refusal.value)
    assert str(refusal.value).startswith("rows.json")


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ("expected=a", "needs input=COLUMN or messages=COLUMN"),
        ("input=q,messages=m", "come from one of them"),
        ("input=q,input=p", "names input twice"),
        ("input", "write ROLE=COLUMN"),
        ("inputs=q", "no role of a column named 'inputs'"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(mapping: str, words: str) -> None:
    with pytest.raises(EvaldeskError) as refusal:
        read_columns(mapping)

    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x [1]\nb: [*x, *x]\n", "YAML with aliases is not read"),
        ("- a: " + "[" * 5_000 + "]" * 5_000, "nested more than 64 levels deep"),
        ("- a: .nan\n", "nan is not a number of JSON"),
        ("- a: 0x" + "f" * 5_000, "a whole number is too long"),
        ('- a: "\\ud800"\n', "surrogates not allowed"),
        ("a: [1, 2\n", "this is not YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "this is not YAML"),
        ("a,b\n1\n", "not as many cells"),
        ("a,b,a\n1,2,3\n", "rows.csv:1: column 'a' stands twice; give each its own name"),
    ],
)
def test_hostile_files_are_refused(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        cases_of(text.encode(), "input=a", "rows.csv" if "," in text and ":" not in text else "rows.yaml")


def test_a_file_that_no_format_knows_offers_the_mapping() -> None:
    for data, source, kind in (
        (b'[{"q": 1}]', "x.json", "no format knows this file, a list whose first item is an object with the keys 'q'"),
        (b'{"q": 1}\n{"q": 2}\n', "x.jsonl", "lines of JSON that no format knows, an object with the keys 'q'"),
        (b"prompts: [a]\n", "x.yaml", "YAML that no format knows, an object with the keys 'prompts'"),
    ):
        with pytest.raises(FormatError) as refusal:
            read_file(data, source)
        assert kind in str(refusal.value)
        assert "evaldesk import FILE --map input=COLUMN,expected=COLUMN" in str(refusal.value)


DATA_SETS: dict[str, tuple[Any, Case]] = {
    "DeepEval goldens": (
        [
            {
                "input": "hi",
                "expected_output": "hello",
                "additional_metadata": {"a": 1},
                "context": None,
                "expected_tools": [{"name": "look", "input_parameters": {}, "args": {"x": 1}}],
            }
        ],
        Case(
            "row_1",
            (Turn("hi", Expected((ToolCall("look", {"x": 1}),), reference="hello")),),
            extra={"metadata": {"a": 1}, "context": None},
        ),
    ),
    "pydantic-evals": (
        {"name": "s", "cases": [{"name": "one", "inputs": "hi", "expected_output": "hello"}], "evaluators": []},
        Case("one", (Turn("hi", Expected(reference="hello")),)),
    ),
    "LangSmith examples": (
        [{"id": "e1", "inputs": {"question": "hi"}, "outputs": {"answer": "hello"}, "metadata": None}],
        Case("e1", (Turn("hi", Expected(reference="hello")),)),
    ),
    "Langfuse data set items": (
        [{"id": "i1", "input": "hi", "expectedOutput": "hello", "metadata": {"a": 1}, "status": "ACTIVE"}],
        Case("i1", (Turn("hi", Expected(reference="hello")),), extra={"status": "ACTIVE", "metadata": {"a": 1}}),
    ),
    "Braintrust data sets": (
        [{"id": "b1", "input": "hi", "expected": "hello", "tags": ["x"], "metadata": None}],
        Case("b1", (Turn("hi", Expected(reference="hello")),), tags=("x",)),
    ),
    "MLflow data sets": (
        [{"inputs": {"question": "hi"}, "expectations": {"expected_response": "hello"}}],
        Case("row_1", (Turn("hi", Expected(reference="hello")),)),
    ),
    "Azure AI Foundry rows": (
        [{"query": "hi", "ground_truth": "hello"}],
        Case("row_1", (Turn("hi", Expected(reference="hello")),)),
    ),
}


@pytest.mark.parametrize("tool", DATA_SETS)
def test_the_mapping_of_the_documentation_reads_the_data_set_of_the_tool(tool: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {tool} |"))
    mapping = row.partition("--map ")[2].partition("`")[0]
    rows, case = DATA_SETS[tool]

    assert cases_of(rows, mapping) == (case,)


def test_the_documentation_has_each_role() -> None:
    section = PAGE.partition("## Data sets of any columns")[2].partition("\n## ")[0]

    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == [*ROLES]


def read_by_metrics(path: Path) -> object:
    from evaldesk.formats.adk.metrics_config import read_metrics_config

    return read_metrics_config(path.read_bytes(), source=str(path))


def read_by_rubrics(path: Path) -> object:
    module = island_module("osmosis.command.rubrics")
    return module.read_rubric_config(path, "polite")


def read_as_rows(path: Path) -> object:
    return read_mapped(path.read_bytes(), str(path), read_columns("input=a"))


@pytest.mark.parametrize("read", [read_by_metrics, read_by_rubrics, read_as_rows])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metrics: " + "[" * 5_000 + "]" * 5_000, "nested more than 64 levels deep"),
        ("metrics: [1, 2\n", ":2: this is not YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", ":1: this is not YAML"),
    ],
    ids=["deep", "cut", "code"],
)
def test_each_reader_of_yaml_refuses_a_hostile_file(
    read: Callable[[Path], object], text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "eval_config.yaml"
    path.write_text(text)

    with pytest.raises(FormatError, match=words):
        read(path)
