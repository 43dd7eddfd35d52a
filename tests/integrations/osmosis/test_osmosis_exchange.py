"""Data sets of Osmosis become cases, with its errors for rows and columns."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats import load_evalset, write_evalset
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file, suffix_of, write_file
from evaldesk.metrics.functions.eval_function import row_of
from evaldesk.model import Case, EvalSet, Expected, SessionInit, ToolCall, Turn

GOOD = {"system_prompt": "You add.", "user_prompt": "2 + 2?", "ground_truth": "4"}


def lines(*rows: Any) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def cases_of(imported: Imported) -> tuple[Case, ...]:
    assert imported.evalset is not None
    return tuple(imported.evalset.cases)


def test_a_row_becomes_a_case_of_one_turn() -> None:
    first, second = cases_of(read_file(lines(GOOD, GOOD | {"level": "hard", "n": 2**70}), "add.jsonl"))

    assert (first.id, second.id) == ("row_0", "row_1")
    assert first.turns == (Turn("2 + 2?", Expected(reference="4")),)
    assert first.extra == {"system_prompt": "You add."}
    assert second.extra == {"system_prompt": "You add.", "level": "hard", "n": 2**70}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "Row 1: Expected object, got list"),
        ({"system_prompt": "x"}, "Row 1: Missing required columns: ['user_prompt']"),
        (GOOD | {"user_prompt": None}, "Row 1: 'user_prompt' cannot be null"),
        (GOOD | {"ground_truth": 4}, "Row 1: 'ground_truth' must be a string, got int"),
        (GOOD | {"user_prompt": "  "}, "Row 1: 'user_prompt' cannot be empty"),
        (GOOD | {"system_prompt": {}}, "Row 1: 'system_prompt' must be a string, got dict"),
        (GOOD | {"USER_PROMPT": "again"}, "Row 1: the column 'user_prompt' is there twice"),
        ({"metadata": "{"}, "row 1: metadata is not valid JSON"),
        ({"metadata": [1]}, "row 1: metadata must be a JSON object"),
        ('{"user_prompt": ', "Invalid JSON at line 2: "),
        (GOOD | {"case_id": "row_0"}, "Row 1: the case_id 'row_0' is there twice"),
    ],
)
def test_an_error_names_the_row_and_the_column(row: Any, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_file(lines(GOOD, row), "add.jsonl")

    assert message in caught.value.reason
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b'{"user_prompt": "x", "ground_truth": "y"}', "a.json", "must contain an array of objects, got dict"),
        (b'[{"user_prompt": "x", "ground_truth": "y"}, 7]', "a.json", "a.json:1:45: Row 1: Expected object, got int"),
        (b"user_prompt,ground_truth\na,b,c\n", "a.csv", "CSV row 1 has more columns than the header"),
        (b"user_prompt,n,n\na,1,2\n", "a.csv", "column 'n' stands twice; give each its own name"),
        (b"ground_truth,user_prompt\na\n", "a.csv", "Row 0: 'user_prompt' cannot be null"),
        (b"user_prompt,ground_truth\na,b\nc", "a.csv", "Row 1: 'ground_truth' cannot be null: the row ends before it"),
        (b"user_prompt,metadata\na,{}\nc\n", "a.csv", "Row 1: 'metadata' cannot be null: the row ends before it"),
        (b'user_prompt,ground_truth\n"a', "a.csv", "Invalid CSV file: "),
        (b"user_prompt\n", "a.csv", "No rows to evaluate"),
        (b"", "a.csv", "No rows to evaluate"),
        ("user_prompt,ground_truth\né,b\n".encode("latin-1"), "a.csv", "is not UTF-8"),
        (b"PAR1 and no more", "a.parquet", "Error reading Parquet file: "),
    ],
)
def test_each_kind_of_file_has_its_own_errors(data: bytes, name: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read_file(data, name)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("row", "reference"),
    [
        ({"system_prompt": "s", "user_prompt": "q"}, None),
        ({"system_prompt": "s", "user_prompt": "q", "ground_truth": None}, None),
        ({"system_prompt": "s", "user_prompt": "q", "ground_truth": ""}, ""),
    ],
    ids=["absent", "null", "empty"],
)
def test_the_ground_truth_is_optional(row: dict[str, Any], reference: str | None) -> None:
    imported = read_file(lines(row), "add.jsonl")

    assert cases_of(imported)[0].turns == (Turn("q", Expected(reference=reference)),)
    assert imported.warnings == ()


def test_rows_without_a_system_prompt_are_named_in_a_warning() -> None:
    bare = {"user_prompt": "q"}
    metadata = {"metadata": {"task": 1}}

    one = read_file(lines(GOOD, bare), "add.jsonl")
    many = read_file(lines(GOOD, bare, metadata, bare | {"system_prompt": ""}), "add.jsonl")

    assert one.warnings == (
        "Warning: no system_prompt in row 1; Osmosis requires this column. The agent gets no system message there.",
    )
    assert many.warnings[0].startswith("Warning: no system_prompt in 2 of 4 rows, first row 1;")
    assert one.warnings[0] in one.understood


def test_known_columns_are_found_in_any_case_and_others_stay_as_they_are() -> None:
    (case,) = cases_of(read_file(lines({"User_Prompt": "q", "GROUND_TRUTH": "t", "Other": 1}), "x.jsonl"))

    assert case.turns[0] == Turn("q", Expected(reference="t"))
    assert case.extra == {"Other": 1}


def test_rows_of_metadata_need_no_prompt_and_may_hold_json_in_a_string() -> None:
    rows = ({"metadata": {"task": 1}}, {"metadata": '{"task": 2}', "label": "yes"})

    first, second = cases_of(read_file(lines(*rows), "x.jsonl"))

    assert (first.extra["metadata"], second.extra["metadata"]) == ({"task": 1}, {"task": 2})
    assert second.turns[0].expected.reference == "yes"


@pytest.mark.parametrize(
    ("form", "messages"),
    [
        ("openai-messages", [{"role": "assistant", "content": "yes"}]),
        ("anthropic-messages", [{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]),
    ],
)
def test_a_row_without_a_prompt_is_exported_without_a_message(form: str, messages: list[Any]) -> None:
    imported = read_file(lines({"metadata": {"task": 1}, "label": "yes"}), "x.jsonl")
    assert imported.evalset is not None
    evalset = replace(imported.evalset, cases=tuple(replace(case, extra={}) for case in cases_of(imported)))

    written = write_file(evalset, form)

    assert json.loads(written.splitlines()[0] if form == "openai-messages" else written)["messages"] == messages
    again = cases_of(read_file(written, f"x{suffix_of(form)}"))
    assert [(turn.query, turn.expected.reference) for turn in again[0].turns] == [("", "yes")]


def test_a_row_without_a_prompt_has_no_part_in_an_eval_set_of_adk_and_no_column_for_functions() -> None:
    (case,) = cases_of(read_file(lines({"metadata": {"task": 1}}), "x.jsonl"))

    written = json.loads(write_evalset(EvalSet("x", cases=(case,)), "adk"))

    assert written["eval_cases"][0]["conversation"][0]["user_content"] == {"parts": [], "role": "user"}
    assert "user_prompt" not in row_of(case)
    assert read_file(json.dumps(written).encode(), "x.evalset.json").evalset.cases[0].turns == case.turns  # type: ignore[union-attr]


def test_names_that_evaldesk_keeps_for_itself_are_refused() -> None:
    imported = read_file(lines(GOOD | {"$form": {"keys": []}}), "x.jsonl")

    assert "$form" not in cases_of(imported)[0].extra
    assert any("$form" in sentence for sentence in imported.refused)


@pytest.mark.parametrize("target", ["osmosis-jsonl", "osmosis-json", "osmosis-csv", "osmosis-parquet"])
def test_the_four_kinds_of_file_say_the_same(target: str) -> None:
    evalset = read_file(lines(GOOD, GOOD | {"case_id": "own"}), "add.jsonl").evalset
    assert evalset is not None

    again = read_file(write_file(evalset, target), f"add.{target.removeprefix('osmosis-')}").evalset

    assert again is not None
    assert [(case.id, case.turns) for case in again.cases] == [(case.id, case.turns) for case in evalset.cases]


def in_parquet(columns: list[str], rows: list[list[Any]]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    out = pyarrow.BufferOutputStream()
    arrays = [pyarrow.array(values) for values in zip(*rows, strict=True)]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=columns), out)
    return bytes(out.getvalue().to_pybytes())


def test_no_value_of_parquet_is_cut_or_written_as_code() -> None:
    long, many = "x" * 1_100_000, list(range(110_000))
    columns = ["system_prompt", "user_prompt", "at", "price", "deep", "many"]
    row = ["s", long, datetime(2026, 1, 2, 3, 4, 5), Decimal("1.10"), [{"day": date(2026, 1, 2), "text": long}], many]

    [case] = cases_of(read_file(in_parquet(columns, [row]), "a.parquet"))

    assert case.turns[0].query == long
    assert case.extra["deep"] == [{"day": "2026-01-02", "text": long}]
    assert (case.extra["at"], case.extra["price"]) == ("2026-01-02T03:04:05", "1.10")
    assert case.extra["many"] == many


def test_two_columns_of_one_name_are_refused_in_parquet_as_in_csv() -> None:
    data = in_parquet(["user_prompt", "ground_truth", "ground_truth"], [["u", "1", "2"]])

    with pytest.raises(FormatError, match="column 'ground_truth' stands twice"):
        read_file(data, "a.parquet")


@pytest.mark.parametrize(
    ("case", "word"),
    [
        (Case("a", scenario={"starting_prompt": "x"}), "scenario"),
        (Case("a", turns=(Turn("x"), Turn("y"))), "2 turns"),
        (Case("a", turns=(Turn("x", Expected((ToolCall("f"),), reference="y")),)), "tool calls"),
        (Case("a", (Turn("", Expected(reference="y")),)), "empty query"),
        (Case("a", (Turn("x", Expected(reference="y")),), initial_session=SessionInit(state={"k": 1})), "state"),
    ],
)
def test_a_case_that_rows_cannot_hold_is_refused_by_name(case: Case, word: str) -> None:
    with pytest.raises(FormatError, match="case 'a'") as caught:
        write_file(EvalSet("s", cases=(case,)), "osmosis-jsonl")

    assert word in str(caught.value)


@pytest.mark.parametrize("name", ["osmosis-jsonl", "osmosis-csv", "openai-messages", "anthropic-messages"])
def test_no_file_is_written_that_holds_nothing(name: str) -> None:
    with pytest.raises(FormatError, match="the eval set has no cases"):
        write_file(EvalSet("s"), name)


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_an_eval_set_is_called_after_its_file_points_and_all(kind: str) -> None:
    data = lines(GOOD) if kind == "jsonl" else b"[" + lines(GOOD) + b"]"

    imported = read_file(data, f"sums/add.v2.{kind}")

    assert imported.evalset
    assert imported.evalset.id == "add.v2"


def test_without_pyarrow_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(FormatError, match=r"pip install 'evaldesk\[parquet\]'"):
        read_file(b"PAR1", "x.parquet")


def test_a_data_set_is_loaded_where_an_eval_set_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "add.jsonl"
    path.write_bytes(lines(GOOD))

    assert [case.id for case in load_evalset(path).cases] == ["row_0"]


def test_results_are_no_eval_set_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes((Path(__file__).parents[2] / "formats/exchange_samples" / "osmosis-results.json").read_bytes())

    with pytest.raises(FormatError, match="evaldesk import"):
        load_evalset(path)
