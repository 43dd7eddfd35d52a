"""Answers beside their reference, as Markdown: rendered once where equal, else with marks at words that differ."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.pages.prose import MAX_RENDERED, Markdown, _html

TAG = re.compile(r"</?(?:del|ins)>")
TEXTS = st.text(st.sampled_from(list("ab *_`#\n-|<&>;1[](")), max_size=60)


def both(expected: str, actual: str) -> tuple[str, str]:
    found = Markdown().difference(expected, actual)
    assert found
    return found[0].html, found[1].html


def test_words_that_differ_are_marked_in_the_rendered_text() -> None:
    expected, actual = both("## Trip\n\nThe **red** car & 2 bags.", "## Trip\n\nThe **blue** car & *3* bags.")

    assert (
        expected
        == "<p><strong>Trip</strong></p>\n<p>The <strong><del>red</del></strong> car &amp; <del>2</del> bags.</p>\n"
    )
    second = "<p>The <strong><ins>blue</ins></strong> car &amp; <em><ins>3</ins></em> bags.</p>\n"
    assert actual == f"<p><strong>Trip</strong></p>\n{second}"


def test_neighbours_that_differ_are_one_mark_and_no_mark_spans_two_blocks() -> None:
    _, actual = both("- one\n- two", "- three four\n- five")

    assert re.findall(r"<ins>[^<]*</ins>", actual) == ["<ins>three four</ins>", "<ins>five</ins>"]


@pytest.mark.parametrize(
    "hostile", ["<script>alert(1)</script> **x**", "[a](javascript:alert(1)) **x**", "`</ins><img>`"]
)
def test_marks_let_no_element_of_a_text_through(hostile: str) -> None:
    for html in (*both("**safe**", hostile), *both(hostile, "**safe**")):
        assert set(re.findall(r"</?(\w+)", html)) <= {"p", "strong", "code", "del", "ins"}


@given(TEXTS, TEXTS)
def test_without_its_marks_each_side_is_the_text_as_it_is_rendered_alone(expected: str, actual: str) -> None:
    found = Markdown().difference(expected, actual)

    if found is None:
        assert not any(Markdown().prose(text).html for text in (expected, actual))
        return
    assert tuple(TAG.sub("", each.html) for each in found) == (_html(expected), _html(actual))
    for each in found:
        assert all("<" not in text for text in re.findall(r"<(?:del|ins)>(.*?)</(?:del|ins)>", each.html, re.DOTALL))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [("one", "two"), ("**a**" * MAX_RENDERED, "b"), ("", "")],
    ids=["plain", "too long", "nothing"],
)
def test_what_is_no_markdown_or_too_long_stands_as_it_is(expected: str, actual: str) -> None:
    assert Markdown().difference(expected, actual) is None


def test_the_reference_of_a_turn_that_errored_is_rendered_too(pages: Any) -> None:
    file = pages.desk.evalsets.read(pages.evalset)[2]
    file.write_text(file.read_text().replace('"never"', '"**never** again"'))

    page = pages.get(f"{pages.finish()}/cases/2/trials/0").text

    (row,) = re.findall(r'<td data-label="Expected">(.*?)</tr>', page, re.DOTALL)
    assert '<div class="prose"><p><strong>never</strong> again</p>' in row
    assert '<p class="raw">**never** again</p>' in row
    assert "no answer" in row
