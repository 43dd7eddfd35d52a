"""Pages of a workspace with an eval set that is large and that nobody has read yet."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.web.evalsets.conftest import CALC

from evaldesk.reading.regular_file import read_regular
from evaldesk.store.evalsets import large, lines
from evaldesk.store.evalsets.case_index import build_index

Pages = Any


@pytest.fixture
def held(pages: Pages, calc: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the reader of the large set go on."""
    go_on = Event()

    def slow(path: Path, max_bytes: int) -> bytes:
        assert path.name != "large.evalset.json" or go_on.wait(300)
        return read_regular(path, max_bytes)

    monkeypatch.setattr("evaldesk.store.evalsets.files.read_regular", slow)
    monkeypatch.setattr(lines, "AT_ONCE", 2_000)
    (pages.folder / "large.evalset.json").write_text(
        '{"eval_set_id": "large", "eval_cases": [' + " " * 3_000 + "]}", "utf-8"
    )
    yield go_on
    go_on.set()


@pytest.mark.parametrize("address", ["/", "/evalsets", "/runs/new", "/search?q=large"])
def test_pages_do_not_wait_for_it_and_say_that_it_is_being_read(
    pages: Pages, held: Event, calc: str, address: str
) -> None:
    text = pages.get(address).text

    assert "being read" in text
    assert "calc" in text or "q=" in address


def test_the_form_of_a_run_says_why_nothing_can_be_started(pages: Pages, held: Event) -> None:
    set_id = next(each.id for each in pages.desk.evalsets.list() if each.name == "large")

    text = pages.get(f"/runs/new?evalset={set_id}").text

    assert "The eval set is being read. Load the page again in a moment." in text
    assert "at least one case before you start" not in text


@pytest.mark.parametrize("address", ["/", "/evalsets"])
def test_lists_ask_again_until_it_is_read(pages: Pages, held: Event, address: str) -> None:
    before = pages.get(address, **{"HX-Target": "section#evalsets"}).text
    held.set()
    while "being read" in (after := pages.get(address, **{"HX-Target": "section#evalsets"}).text):
        pass

    assert re.match(r'\s*<section[^>]* id="evalsets"[^>]*hx-trigger="load delay:600ms, every 1s"', before)
    assert "hx-trigger" not in after
    assert "large" in after


def test_the_page_of_the_set_asks_again_until_it_is_read(pages: Pages, held: Event) -> None:
    set_id = next(each.id for each in pages.desk.evalsets.list() if each.name == "large")

    before = pages.get(f"/evalsets/{set_id}").text
    held.set()
    while "is being read" in (after := pages.get(f"/evalsets/{set_id}").text):
        pass

    assert re.search(r'<main[^>]* hx-trigger="load delay:600ms, every 1s" hx-select="#main"', before)
    assert "No cases yet" in after


def test_a_large_set_is_given_out_case_by_case_without_secrets(
    pages: Pages, calc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "WHOLE", -1)
    monkeypatch.setattr(large, "indexed_facts", build_index)
    monkeypatch.setattr("evaldesk.desk.evalsets.evalsets.masked_file", None)
    secret = "sk-a-secret-of-the-environment"
    monkeypatch.setattr(pages.desk.evalsets, "_environment", {"OPENAI_API_KEY": secret})
    set_id = pages.write("big.evalset.json", {**CALC, "description": f"by {secret}", "eval_cases": CALC["eval_cases"]})
    while any(file.is_reading for file in pages.desk.evalsets.list()):
        pass
    stored = pages.stored("big.evalset.json")

    shown = pages.get(f"/evalsets/{set_id}/exports").text
    answer = pages.get(f"/evalsets/{set_id}/file?format=adk")

    assert "2 cases as one file" in shown
    assert 'filename="big.evalset.json"' in answer.headers["content-disposition"]
    assert secret not in answer.text
    assert answer.json() == {**stored, "description": answer.json()["description"]}
