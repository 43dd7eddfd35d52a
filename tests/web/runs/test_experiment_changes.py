"""An experiment is stopped and resumed on its page, as the commands do it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from evaldesk.desk.experiments.results import results
from evaldesk.wording.words import duration_words

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

    from evaldesk.desk.desk import Desk

VARIED = {"vary": ["temperature"], "vary.temperature": ["0", "1"]}


async def _has_ended(desk: Desk, run_id: int) -> None:
    async for _tick in desk.runs.watch(run_id):
        pass


def wait_for_end(pages: RunPages) -> None:
    """Wait until no variant of experiment 1 is played any more."""
    for run_id in pages.desk.store.experiments.get(1).run_ids:
        pages.client.within(_has_ended, pages.desk, run_id)


@pytest.fixture
def stopped(open_runs: Callable[..., RunPages]) -> RunPages:
    """Experiment 1 of two variants, whose running trials were cancelled before any ended."""
    gate = threading.Event()
    pages = open_runs(gate=gate, models=("openai/big",))
    pages.start(**VARIED)
    live = pages.get("/experiments/1").text
    for _ in range(2):  # pressed twice
        answer = pages.post("/experiments/1/cancellation?sort=id", how="now")
        assert (answer.status_code, answer.headers["location"]) == (303, "/experiments/1?sort=id")
    wait_for_end(pages)
    gate.set()

    assert 'popovertarget="stop"' in live
    assert "0 of 16 trials done; 16 left" in live
    return pages


def statuses(pages: RunPages) -> list[tuple[str, int]]:
    """The status and the trials left of each variant."""
    runs = results(pages.desk.store, 1).runs
    return [(run.status, run.n_todo) for run in runs.values()]


def test_an_experiment_is_stopped_and_resumed_on_its_page(stopped: RunPages) -> None:
    page_text = stopped.get("/experiments/1").text
    before = statuses(stopped)

    answers = [stopped.post("/experiments/1/resumption") for _ in range(2)]  # pressed twice
    wait_for_end(stopped)
    after = stopped.get("/experiments/1").text

    assert before == [("stopped", 8), ("stopped", 8)]
    assert "Resume 16 trials" in page_text
    assert 'popovertarget="stop"' not in page_text
    assert [(each.status_code, each.headers["location"]) for each in answers] == [(303, "/experiments/1")] * 2
    assert statuses(stopped) == [("finished", 0), ("finished", 0)]
    assert all(run.n_duplicates == 0 for run in results(stopped.desk.store, 1).runs.values())
    assert "Resume" not in after


def test_a_budget_that_is_spent_is_refused_with_what_was_typed_and_a_larger_one_plays_on(pages: RunPages) -> None:
    pages.start(**VARIED, budget="6")
    wait_for_end(pages)
    cut = pages.get("/experiments/1").text

    refused = {typed: pages.post("/experiments/1/resumption?sort=id", budget=typed) for typed in ("5", "six", "6")}
    wait_for_end(pages)
    n_done = [run.n_done for run in results(pages.desk.store, 1).runs.values()]
    answers = [pages.post("/experiments/1/resumption", budget="16") for _ in range(2)]
    wait_for_end(pages)

    assert "The experiment began as many trials as its budget has: 6 trials." in cut
    assert 'name="budget" value="6' in cut
    assert {each.status_code for each in refused.values()} == {422}
    assert "No further trial would begin" in refused["5"].text
    assert "No further trial would begin" in refused["6"].text
    assert "must be a number of trials such as 200" in refused["six"].text
    assert 'value="six"' in refused["six"].text
    assert sum(n_done) == 6
    assert {each.status_code for each in answers} == {303}
    assert statuses(pages) == [("finished", 0), ("finished", 0)]


def test_the_trials_left_are_told_with_their_time(pages: RunPages) -> None:
    pages.start(**VARIED, budget="6")
    wait_for_end(pages)

    text = pages.get("/experiments/1").text

    runs = results(pages.desk.store, 1).runs.values()
    ms = 10 * max(run.active_ms for run in runs) / 6
    assert f"6 of 16 trials done; 10 left, cost not known, about {duration_words(ms)}." in text
    assert f"Cost not known, about {duration_words(ms)}, as the trials so far. 6 of 16 trials are done" in text


@pytest.mark.parametrize("name", ["cancellation", "resumption"])
def test_an_experiment_that_is_not_there_is_neither_stopped_nor_resumed(pages: RunPages, name: str) -> None:
    assert pages.post(f"/experiments/4/{name}").status_code == 404
    assert pages.get(f"/experiments/4/{name}").status_code == 405
