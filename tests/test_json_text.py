"""JSON as text, written in one place."""

from __future__ import annotations

from evaldesk.model.json_text import json_line, json_or_text, shortened


def test_json_stands_on_one_line_with_spaces() -> None:
    assert json_line({"a": [1, "é"], "b": None}) == '{"a": [1, "é"], "b": null}'


def test_a_text_stays_as_it_is_and_anything_else_becomes_json() -> None:
    assert (json_or_text("Grüß"), json_or_text({"a": "ü"}), json_or_text(None)) == ("Grüß", '{"a": "ü"}', "null")


def test_a_long_value_is_cut_with_a_mark() -> None:
    assert (shortened("abc", 5), shortened("abcdef", 5)) == ('"abc"', '"abcd…')
