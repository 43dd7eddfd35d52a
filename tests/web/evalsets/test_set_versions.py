"""The versions of a set: two of them side by side, and what brings one back."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.model.evalset import case_key

Pages = Any


def rename_and_change(pages: Pages, calc: str) -> None:
    """Two changes of the desk: another message in a case, and a case less."""
    desk = pages.desk.evalsets
    desk.evalset(calc)
    path = desk.file(calc).path
    path.write_text(path.read_text().replace("Roll a die", "Roll two dice <b>now</b>"))


def versions(pages: Pages, calc: str) -> list[str]:
    return [each.version for each in pages.desk.evalsets.versions.list(calc)]


def test_two_versions_are_compared_case_by_case(pages: Pages, calc: str) -> None:
    rename_and_change(pages, calc)

    text = pages.get(f"/evalsets/{calc}/versions").text

    assert "1 case changed; <span>" in text
    assert "turn 1, message" in text
    assert "Roll two dice &lt;b&gt;now&lt;/b&gt;" in text
    assert re.search(r'data-variant="B">B</span><a href="/evalsets/[^"]+/versions\?from=\w{8}&amp;to=\w{8}"', text)
    assert "changed outside; no run yet" in text


def test_a_version_is_restored_and_that_is_undone(pages: Pages, calc: str) -> None:
    rename_and_change(pages, calc)
    newest, first = versions(pages, calc)

    answer = pages.post(f"/evalsets/{calc}/versions", {"version": first})
    text = pages.get(answer.headers["location"]).text

    assert answer.status_code == 303
    assert versions(pages, calc) == [first, newest, first]
    assert f"Restored {first[:8]}. It is a new version." in text
    assert f'name="version" value="{newest}"' in text
    pages.post(f"/evalsets/{calc}/versions", {"version": newest})
    assert versions(pages, calc)[0] == newest


def test_one_case_is_restored(pages: Pages, calc: str) -> None:
    rename_and_change(pages, calc)
    first = versions(pages, calc)[1]

    answer = pages.post(f"/evalsets/{calc}/versions", {"version": first, "case": "roll/and check"})

    assert answer.status_code == 303
    case = pages.desk.evalsets.cases.find(calc, case_key("roll/and check")).case
    assert case.turns[0].query == "Roll a die"


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"version": "ffffffff"}, "there is no version"), ({"version": ""}, "too short"), ({}, "too short")],
)
def test_a_version_that_is_not_there_changes_nothing(
    pages: Pages, calc: str, fields: dict[str, str], words: str
) -> None:
    before = pages.desk.evalsets.file(calc).path.read_bytes()

    answer = pages.post(f"/evalsets/{calc}/versions", fields)

    assert answer.status_code in {404, 409, 422}
    assert words in answer.text
    assert pages.desk.evalsets.file(calc).path.read_bytes() == before


@pytest.mark.parametrize("query", ["from=ffffffff", "to=ffffffff", "from=zz"])
def test_an_unknown_version_in_an_address_is_refused(pages: Pages, calc: str, query: str) -> None:
    assert pages.get(f"/evalsets/{calc}/versions?{query}").status_code in {404, 422}


def test_the_markdown_of_two_versions_is_a_file(pages: Pages, calc: str) -> None:
    rename_and_change(pages, calc)
    newest, first = versions(pages, calc)

    answer = pages.get(f"/evalsets/{calc}/versions/summary?from={first[:8]}&to={newest[:8]}")

    assert answer.headers["content-disposition"].endswith(f'filename="{first[:8]}-{newest[:8]}.md"')
    assert "changed: turn 1, message" in answer.text
    assert "<b>" not in answer.text.split("~~~")[0]


def test_the_page_of_the_set_leads_to_its_versions(pages: Pages, calc: str) -> None:
    text = pages.get(f"/evalsets/{calc}").text

    assert f'href="/evalsets/{calc}/versions">{versions(pages, calc)[0][:8]}</a>' in text
    assert f'href="/evalsets/{calc}/versions">Versions <b>1</b></a>' in text
