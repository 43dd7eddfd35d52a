"""JSON as text, written in one place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.errors import FormatError
from evaldesk.model.json_text import json_line, json_or_text, short_json
from evaldesk.reading.json_text import text_parts, to_text

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
    max_leaves=12,
)


@given(st.lists(_VALUES, max_size=4), st.lists(_VALUES, max_size=3), st.dictionaries(st.text(), _VALUES, max_size=3))
def test_a_value_with_iterators_in_it_is_written_as_one_with_lists(
    items: list[Any], runs: list[Any], more: dict[str, Any]
) -> None:
    whole = {"deep": [{"in": [{"items": items}]}], "rows": [{"at": 1, "runs": runs}, *items], "more": more, "end": 1}
    rows = iter([{"at": 1, "runs": iter(runs)}, *items])

    parts = text_parts({**whole, "deep": [{"in": [{"items": iter(items)}]}], "rows": rows}, "a file")

    assert b"".join(parts) == to_text(whole, {}, "a file")


@given(
    _VALUES | st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["  ", " ", "    ", "\t", " \t", None])
)
def test_a_file_is_laid_out_as_python_lays_out_json(value: Any, indent: str | None) -> None:
    expected = json.dumps([value, {"a": value}], ensure_ascii=False, indent=indent)

    assert to_text([value, {"a": value}], {"indent": indent}, "a file").decode() == expected


def test_a_value_that_json_cannot_hold_is_named_by_its_place() -> None:
    parts = text_parts({"rows": iter([{"a": 1}, {"b": [float("nan")]}])}, "a file")

    assert next(parts)
    with pytest.raises(FormatError) as caught:
        list(parts)
    assert caught.value.path == "rows[1].b[0]"


def test_json_stands_on_one_line_with_spaces() -> None:
    assert json_line({"a": [1, "é"], "b": None}) == '{"a": [1, "é"], "b": null}'


def test_a_text_stays_as_it_is_and_anything_else_becomes_json() -> None:
    assert (json_or_text("Grüß"), json_or_text({"a": "ü"}), json_or_text(None)) == ("Grüß", '{"a": "ü"}', "null")


def test_a_long_value_is_cut_with_a_mark() -> None:
    assert (short_json("abc", 5), short_json("abcdef", 5)) == ('"abc"', '"abcd…')
