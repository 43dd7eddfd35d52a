"""The published runs of tau-bench, from the file to the numbers on the page of their run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.settings import Settings
from evaldesk.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def test_the_page_of_the_imported_run_says_what_tau_bench_published(shared: Path, store: Store, tmp_path: Path) -> None:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    desk = ImportDesk(settings, store, EvalSetDesk(settings, store))
    source = shared / "data" / "tau" / "gpt-4o-airline.json"

    staged = desk.staging.stage(source.read_bytes(), source.name)
    taken = desk.take_in(staged.imported, source=source.name, name="airline")
    page = read_run(store.runs, taken.run_ids[0], RunQuery())

    points = page.reliability.points
    assert [round(point.pass_hat_k or 0, 3) for point in points] == [0.42, 0.273, 0.22, 0.2]
    assert [round(point.pass_at_k or 0, 4) for point in points] == [0.42, 0.5667, 0.66, 0.72]
    assert (page.summary.n_passed, page.summary.n_scored, page.summary.n_trials) == (84, 200, 200)
    assert page.reliability.words == "pass@k goes from 0.42 to 0.72, pass^k from 0.42 to 0.20 at k 4"
