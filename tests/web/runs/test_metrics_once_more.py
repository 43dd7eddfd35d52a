"""The same metric more than once on a form: asked for by a button, named, run, and shown under its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

SEARCH: Mapping[str, str] = {"tool_used.threshold": "1", "tool_used.tool": "roll_die"}
AGAIN: Mapping[str, str] = {"tool_used/2.threshold": "1", "tool_used/2.tool": "book", "tool_used/2.at_most": "0"}


def ticked(page: str) -> list[str]:
    return re.findall(r'name="metric" value="([^"]*)" checked', page)


def test_a_button_adds_the_metric_once_more_and_keeps_what_was_typed(pages: Any) -> None:
    asked = {"metric": ["tool_used"], **SEARCH, "another": "tool_used"}

    page = pages.post("/runs/new", **pages.form(**asked)).text
    third = pages.post("/runs/new", **pages.form(**{**asked, "metric": ["tool_used", "tool_used/2"]})).text

    assert ticked(page) == ["tool_used", "tool_used/2"]
    assert ticked(third) == ["tool_used", "tool_used/2", "tool_used/3"]
    assert re.search(r'name="tool_used.tool" value="roll_die"', page)
    assert re.search(r'name="tool_used/2.tool" value=""', page)
    assert re.search(r'name="tool_used/2.label" value="2"', page)
    assert page.count('name="another" value="tool_used"') == 1
    assert 'value="tool_used/2"' not in pages.get("/runs/new").text


def test_a_run_scores_each_under_the_name_it_was_given(pages: Any) -> None:
    fields = {"tool_used/2.label": " never-book ", "tool_used/2.at_least": "0"}

    run = pages.finish(n="1", metric=["tool_used", "tool_used/2"], **SEARCH, **AGAIN, **fields)
    page, again = pages.get(run).text, pages.get(f"/runs/new?like={run[6:]}").text

    assert 'Tool used: never-book <span class="sub mono">tool_used/never-book</span>' in page
    assert 'Tool used <span class="sub mono">tool_used</span>' in page
    assert ticked(again) == ["tool_used", "tool_used/never-book"]
    assert re.search(r'name="tool_used/never-book.tool" value="book"', again)
    assert re.search(r'name="tool_used/never-book.label" value="never-book"', again)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("two words", "a name of 1 to 40 letters, digits, _ or -, not &#39;two words&#39;"),
        ("<b>", "not &#39;&lt;b&gt;&#39;"),
        ("", "a name of 1 to 40 letters"),
        ("3", "tool_used/3 is there already; name this one otherwise"),
    ],
)
def test_a_label_that_cannot_be_is_refused_beside_its_field(pages: Any, label: str, said: str) -> None:
    third = {"tool_used/3.tool": "a", "tool_used/3.threshold": "1", "tool_used/3.label": "3"}
    form = pages.form(metric=["tool_used/2", "tool_used/3"], **AGAIN, **third, **{"tool_used/2.label": label})

    answer = pages.post("/runs", **form)

    assert answer.status_code == 422
    (error,) = re.findall(r'id="tool_used/2.label-error"[^>]*>(.*?)</p>', answer.text)
    assert said in error


def test_a_stored_run_is_scored_again_with_one_more(pages: Any) -> None:
    source = pages.finish(n="1")
    form = {"filled": "1", "metric": ["tool_used", "tool_used/2"], **SEARCH, **AGAIN}
    form |= {"tool_used/2.at_least": "0", "tool_used/2.label": "none"}

    preview = pages.post(f"{source}/scorings/new", **form, another="tool_used")
    answer = pages.post(f"{source}/scorings", **form)

    assert ticked(preview.text) == ["tool_used", "tool_used/none", "tool_used/2"]
    assert answer.status_code == 303
    assert "event: done" in pages.get(f"{answer.headers['location']}/events").text
    assert "tool_used/none" in pages.get(answer.headers["location"]).text


@pytest.mark.parametrize("named", ["os:system", "../x", "tool_usd", ""])
def test_the_button_adds_nothing_for_a_name_that_is_no_metric(pages: Any, named: str) -> None:
    page = pages.post("/runs/new", **pages.form(metric=["tool_used"], **SEARCH, another=named))

    assert page.status_code == 200
    assert ticked(page.text) == ["tool_used"]
