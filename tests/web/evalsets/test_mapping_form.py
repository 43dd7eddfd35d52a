"""The form that gives meanings to the columns of a data set that no format knows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evaldesk.formats.mapped_rows import columns_in, proposed_columns

Pages = Any
ROWS: list[dict[str, Any]] = [
    {"question": "What is <b>it</b>?", "answer": "a roll", "why": {"by": "jo", "n": 3}},
    {"question": "And now?", "answer": "4", "topic": "dice,rolls"},
]


def upload(pages: Pages, name: str, data: bytes) -> Any:
    return pages.client.post("/imports", files={"file": (name, data)})


def as_csv() -> bytes:
    return b"question,answer,topic\nHello?,Hi,talk\nBye?,Bye,talk\n"


def test_rows_that_no_format_knows_are_mapped_by_a_form(pages: Pages) -> None:
    came = upload(pages, "rows.json", json.dumps(ROWS).encode())
    address = pages.client.get(came.headers["location"]).headers["location"]
    form = pages.get(address).text
    mapped = pages.post(address, {"column-input": "question", "column-expected": "answer", "column-tags": "topic"})
    preview = pages.get(mapped.headers["location"]).text
    done = pages.post(mapped.headers["location"], {"name": "talks"})
    evalset = pages.desk.evalsets.evalset(done.headers["location"].partition("?")[0].rpartition("/")[2])

    assert came.status_code == 303
    assert address.endswith("/mapping")
    assert '<option value="question" selected>' in form
    assert '<option value="why.by">' in form
    assert "What is &lt;b&gt;it&lt;/b&gt;?" in form
    assert "Import 2 cases" in preview
    assert [case.turns[0].query for case in evalset.cases] == [row["question"] for row in ROWS]
    assert [case.turns[0].expected.reference for case in evalset.cases] == ["a roll", "4"]
    assert evalset.cases[1].tags == ("dice", "rolls")
    assert evalset.cases[0].extra["why"] == {"by": "jo", "n": 3}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "choose a column for one of input and messages"),
        ({"column-input": "nothing"}, "the file has no column"),
        ({"column-input": "question", "column-messages": "answer"}, "choose a column for one of input and messages"),
        ({"column-input": "topic"}, "the row has no"),
    ],
)
def test_a_mapping_that_cannot_be_is_shown_again(pages: Pages, columns: dict[str, str], sentence: str) -> None:
    came = upload(pages, "rows.json", json.dumps(ROWS).encode())

    answer = pages.post(f"{came.headers['location']}/mapping", columns)

    assert answer.status_code == 422
    assert sentence in answer.text.replace("&#39;", "'")


def test_a_file_without_rows_is_refused_and_a_known_one_has_no_mapping(pages: Pages) -> None:
    refused = upload(pages, "talk.json", b'"no rows"')
    known = upload(pages, "set.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": []}).encode())

    assert refused.status_code == 422
    assert pages.client.get(f"{known.headers['location']}/mapping").headers["location"] == known.headers["location"]
    answer = pages.post(f"{known.headers['location']}/mapping", {"column-input": "x"})
    assert answer.headers["location"] == known.headers["location"]
    assert pages.get(f"/imports/{'0' * 24}/mapping").status_code == 404


def test_columns_are_those_of_the_first_rows() -> None:
    assert [each.name for each in columns_in(as_csv(), "a.csv")] == ["question", "answer", "topic"]
    assert columns_in(b"{", "a.json") == ()
    assert columns_in(b"\xff\xfe\x00", "a.csv") == ()
    assert [each.name for each in columns_in(b'{"a,b": 1, "c=d": 2, "e": 3}', "a.json")] == ["e"]
    many = json.dumps([{f"c{n}": n for n in range(500)}]).encode()
    assert len(columns_in(many, "a.json")) == 60


def test_hostile_columns_stay_few_short_and_plain(pages: Pages) -> None:
    letters = {"<b>x</b>": "\x1b[31mred", "n" * 151: "x", "\x1b[1m": "x", "\u202eabc": "x", "w" * 150: "y" * 5_000}
    rows = [{"question": "x" * 100_000, **letters, **{f"c{n}": n for n in range(10_000)}}]

    came = upload(pages, "<i>rows.json", json.dumps(rows).encode())
    answer = pages.get(f"{came.headers['location']}/mapping")

    assert answer.status_code == 200
    assert len(answer.text) < 60_000
    assert "&lt;b&gt;x&lt;/b&gt;" in answer.text
    assert "&lt;i&gt;rows.json" in answer.text
    assert "n" * 151 not in answer.text
    assert "w" * 150 in answer.text
    assert "�[31mred" in answer.text
    assert not {"\x1b", "\u202e"} & set(answer.text)
    assert "rows.json" in pages.get("/imports").text


def test_a_long_file_shows_the_columns_of_its_first_rows() -> None:
    cell = b"x" * 1_000_000

    assert [each.name for each in columns_in(b'{"a": 1}\n{"a": "%b", "b": 2}\n' % cell, "a.jsonl")] == ["a"]
    assert [each.name for each in columns_in(b'a,b\n1,2\n"%b",3\n' % cell, "a.csv")] == ["a", "b"]
    assert columns_in(b'[{"a": "%b"}]' % cell, "a.json") == ()


@pytest.mark.parametrize(
    ("row", "proposal"),
    [
        ({"question": "q", "answer": "a"}, {"input": "question", "expected": "answer"}),
        # LangSmith, MLflow and DeepEval, by their documented fields.
        ({"inputs": {"question": "q"}, "outputs": {"answer": "a"}}, {"input": "inputs", "expected": "outputs.answer"}),
        (
            {"inputs": {"question": "q"}, "expectations": {"expected_response": "a"}},
            {"input": "inputs", "expected": "expectations.expected_response"},
        ),
        (
            {"input": "q", "expected_output": "a", "expected_tools": [{"name": "roll"}], "name": "one"},
            {"input": "input", "expected": "expected_output", "calls": "expected_tools", "id": "name"},
        ),
        ({"messages": [{"role": "user", "content": "q"}], "input": "x"}, {"messages": "messages"}),
    ],
)
def test_usual_names_are_proposed(row: dict[str, Any], proposal: dict[str, str]) -> None:
    assert proposed_columns(columns_in(json.dumps([row]).encode(), "a.json")) == proposal


def test_the_form_names_every_role(pages: Pages) -> None:
    came = upload(pages, "rows.json", json.dumps(ROWS).encode())
    text = pages.get(f"{came.headers['location']}/mapping").text

    assert re.findall(r'name="column-(\w+)"', text) == [
        *("input", "messages", "expected", "calls", "id", "tags", "metadata")
    ]
