"""What broke first in a run: failed trials that fail alike are counted together, on the run page and on its own."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from evaldesk.pages.runs import divergences as run_divergences
from evaldesk.pages.runs.divergences import read_divergences

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

BLOCK = {"HX-Request": "true", "HX-Target": "section#broke"}


def shown(text: str) -> list[tuple[str, str, str]]:
    """Count, words and cases of each way to fail."""
    found = re.findall(r"<li><b>(\d+)</b><a href=[^>]+>(.*?)</a><small>(.*?)</small></li>", text)
    return [(n, html.unescape(words), html.unescape(cases)) for n, words, cases in found]


def test_trials_that_fail_alike_are_one_way_to_fail(pages: RunPages) -> None:
    run = pages.finish(n="3")

    text = pages.get(f"{run}/divergences").text

    assert shown(text) == [("3", "roll_die missing", "misses")]
    assert "In 3 failed trials" in text


def test_the_run_page_fetches_the_block_alone(pages: RunPages) -> None:
    run = pages.finish()

    page = pages.get(run).text
    block = pages.get(f"{run}/divergences", **BLOCK).text

    assert f'hx-get="{run}/divergences"' in page
    assert block.strip().startswith('<section class="panel" id="broke"')
    assert "<html" not in block


def test_a_page_that_watched_the_run_gets_the_block_at_its_end(pages: RunPages) -> None:
    run = pages.finish(n="3")

    stream = pages.get(f"{run}/events").text

    assert shown(stream) == [("3", "roll_die missing", "misses")]
    assert stream.index("outerHTML:#broke") < stream.index("event: done")


def test_each_way_leads_to_its_first_trial(pages: RunPages) -> None:
    run = pages.finish()

    href = re.search(r'<b>\d+</b><a href="([^"]+)"', pages.get(f"{run}/divergences").text)

    assert href
    assert 'data-shows="failure"' in pages.get(href[1]).text


def test_a_run_without_a_failed_trial_has_no_such_section(pages: RunPages) -> None:
    run = pages.finish(cases="selected", case="greets")

    assert 'id="broke"' not in pages.get(run).text
    assert "No failed trial diverges in a call" in pages.get(f"{run}/divergences").text


def test_a_run_that_is_not_there_is_not_found(pages: RunPages) -> None:
    assert pages.get("/runs/99/divergences").status_code == 404


def test_of_very_many_failures_those_of_the_worst_cases_are_read(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_divergences, "MAX_TRIALS", 2)
    run = pages.finish(n="5")

    found = read_divergences(pages.desk, int(run.rpartition("/")[2]))

    assert found.n_read == 2
    assert "In 2 failed trials of the worst cases" in pages.get(f"{run}/divergences").text
