"""What broke first in a run: failed trials that fail alike are counted together, on the run page and on its own."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

BLOCK = {"HX-Request": "true", "HX-Target": "section#broke"}


def shown(text: str) -> list[tuple[str, str, str]]:
    """Count, words and cases of each way to fail."""
    found = re.findall(
        r"<li><a href=[^>]+><b>(\d+)</b> <span>(.*?)</span></a><svg.*?</svg><small>(.*?)</small></li>", text
    )
    return [(n, html.unescape(words), html.unescape(cases)) for n, words, cases in found]


def test_trials_that_fail_alike_are_one_way_to_fail(pages: RunPages) -> None:
    run = pages.finish(n="3")

    text = pages.get(f"{run}/divergences").text

    assert shown(text) == [("3", "roll_die missing", "misses")]
    assert "3 failed trials</a>" in text


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


def test_each_bar_filters_the_table_by_its_divergence(pages: RunPages) -> None:
    run = pages.finish()

    href = re.search(r'<a href="([^"]+)"><b>', pages.get(f"{run}/divergences").text)

    assert href
    rows = re.findall(r'<th scope="row"><a href="[^"]*">(\w+)</a></th>', pages.get(href[1].split("#")[0]).text)
    assert rows == ["misses"]


def test_a_run_without_a_failed_trial_has_no_such_section(pages: RunPages) -> None:
    run = pages.finish(cases="selected", case="greets")

    assert 'id="broke"' not in pages.get(run).text
    assert "No failed trial diverges in a call" in pages.get(f"{run}/divergences").text


def test_a_run_that_is_not_there_is_not_found(pages: RunPages) -> None:
    assert pages.get("/runs/99/divergences").status_code == 404


def test_every_failed_trial_is_in_a_bar_and_every_count_is_a_link(pages: RunPages) -> None:
    run = pages.finish(n="5")

    text = pages.get(f"{run}/divergences").text

    n_failed = pages.desk.store.runs.summary(int(run.rpartition("/")[2])).counts.failed
    assert sum(int(n) for n, *_ in shown(text)) == n_failed == 5
    assert len(re.findall(r'<a href="[^"]+"><b>\d', text)) == len(shown(text))
