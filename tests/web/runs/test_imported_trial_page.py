"""The page of a trial that another tool played: what its file does not say is not made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaldesk.formats.files import read_file

SAMPLES = Path(__file__).parents[2] / "formats" / "exchange_samples"


def _page(pages: Any, name: str) -> str:
    path = SAMPLES / name
    taken = pages.desk.imports.take_in(read_file(path.read_bytes(), path.name), source=path.name, name="imported")
    return str(pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0").text)


def test_a_trial_without_times_and_usage_says_that_they_are_unknown(pages: Any) -> None:
    page = _page(pages, "tau-bench.json")

    assert "time unknown, no model call reported" in page
    assert "0 ms" not in page
    assert '<th scope="col">Expected</th>' not in page
    assert "<b>reward:</b> The database and the required outputs are as expected." in page


def test_a_trial_that_nothing_scored_finished_all_the_same(pages: Any) -> None:
    page = _page(pages, "otel.json")

    assert "No metric scored this trial." in page
    assert "What did not finish" not in page
    assert "2.9 s" in page
