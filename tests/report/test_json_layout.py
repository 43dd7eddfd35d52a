"""JSON laid out for a person: what fits stays on a line, and a large value costs no more than its size."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.model.json_text import json_line
from evaldesk.wording import json_layout
from evaldesk.wording.json_layout import WIDTH, _parts, laid_out

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**6) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=30,
)


@given(VALUES)
def test_parts_are_those_of_one_line(value: object) -> None:
    assert "".join(_parts(value)) == json_line(value)


@given(VALUES)
def test_a_layout_is_the_value_and_opens_only_what_does_not_fit(value: object) -> None:
    text = laid_out(value)

    assert json.loads(text) == value
    assert (text == json_line(value)) == (len(json_line(value)) <= WIDTH or not isinstance(value, dict | list))


def test_the_outermost_level_is_opened_on_request() -> None:
    assert laid_out({"a": [1]}, width=0) == '{\n  "a": [1]\n}'
    assert laid_out({}, width=0) == "{}"


def test_no_level_is_written_again_for_the_levels_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    n_written = 0

    def counted(value: object) -> str:
        nonlocal n_written
        text = json_line(value)
        n_written += len(text)
        return text

    monkeypatch.setattr(json_layout, "json_line", counted)
    value: object = ["x" * 60] * 20
    for _ in range(30):
        value = {"inner": value}

    text = laid_out(value)

    assert n_written < 4 * len(text)
