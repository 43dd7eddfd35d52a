"""Where the trials of a run are played is told to other processes, and shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import update
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started

from evaldesk.desk.doctor import look_at_runs
from evaldesk.desk.runs import players
from evaldesk.desk.runs import runs as runs_module
from evaldesk.model import Case, Turn
from evaldesk.model.run import Place
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.store import Store
from evaldesk.store.tables.runs import RUN
from evaldesk.wording.places import again_sentence, place_words, places_words

pytestmark = pytest.mark.anyio

LOST = "4242 gpu-07 12345@abcdef01"
HERE = Place("vm-1", "process", 2, 3)
HOSTS = (Place("gpu-01", "host", 4, 7), Place("gpu-02", "host", 4, 8), Place("gpu-03", "host", 0, 0, "lost", "no node"))


async def stored(store: Store, run_id: int, places: tuple[Place, ...]) -> None:
    while store.runs.summary(run_id).places != places:
        await asyncio.sleep(0.01)


async def test_a_place_that_comes_or_is_lost_is_stored_at_once_and_its_load_with_the_lease(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(players, "LOOK_S", 0.01)
    executor = HandExecutor()
    executor.places = (HERE,)
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=1)
    await executor.holds(1)

    async with asyncio.timeout(300):
        await stored(store, run_id, (HERE,))
        executor.places = (replace(HERE, n_under_way=1),)
        executor.places = (*executor.places, *HOSTS)
        await stored(store, run_id, tuple(executor.places))
    assert desk.places(run_id) == executor.places
    executor.end()
    await over(desk, run_id)

    assert desk.places(run_id) is None


async def test_a_run_of_another_process_shows_its_stored_places_while_it_goes_on(
    open_desk: OpenDesk, store: Store
) -> None:
    executor = HandExecutor()
    run_id = await started(open_desk(executor), n_cases=1)
    await executor.holds(1)
    summary = store.runs.summary(run_id)

    assert store.runs.renew(run_id, summary.lease, HOSTS)
    page = read_run(store.runs, run_id, RunQuery())
    assert (page.places, page.places_words) == (HOSTS, "2 hosts, 8 workers")
    assert store.runs.renew(run_id, summary.lease, (HERE,))
    assert read_run(store.runs, run_id, RunQuery()).places == ()  # one machine, and all is well
    assert not store.runs.renew(run_id, summary.lease + 1, HOSTS)
    assert store.runs.summary(run_id).places == (HERE,)


async def test_doctor_says_of_runs_that_go_on_who_lost_them_and_what_was_lost(
    open_desk: OpenDesk, store: Store
) -> None:
    executor = HandExecutor()
    going = await started(open_desk(executor), n_cases=1)
    await executor.holds(1)
    summary = store.runs.summary(going)
    lost, waiting = (
        store.runs.create(summary.config, [Case("a", (Turn("hi"),))], owner) for owner in (LOST, runs_module.WAITING)
    )
    with store.runs._database.writing() as connection:
        connection.execute(update(RUN).where(RUN.c.id == lost).values(leased_until=1.0))
        taken = {"reason": "Taken over from gpu-07, which was lost: trials are played again.", "n_played_again": 2}
        connection.execute(update(RUN).where(RUN.c.id == going).values(taken))
    assert store.runs.renew(going, summary.lease, HOSTS)

    found = {each.about: each for each in look_at_runs(store)}

    assert (found[f"run {lost}"].state, found[f"run {waiting}"].state) == ("warning", "untried")
    assert f"its process on gpu-07 is gone; an open desk goes on with it, or `evaldesk run resume {lost}`" in (
        found[f"run {lost}"].sentence
    )
    words = found[f"run {going}"].sentence
    for part in ("0 of 1 trials done", "Taken over from gpu-07", "gpu-03: lost: no node", "2 trials were played again"):
        assert part in words


async def test_trials_that_were_lost_are_counted_once_and_said(open_desk: OpenDesk, store: Store) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=3, concurrency=3)
    await executor.holds(3)

    executor.end(attempt=3, losses=("no node", "killed"), place="gpu-01")
    executor.end(attempt=2, losses=("killed",))
    executor.end()
    summary = await over(desk, run_id)

    assert (summary.n_played_again, summary.n_passed) == (2, 3)
    assert (
        "2 trials were played again, because their workers or hosts were lost, or changed by another trial; model"
        in (read_run(store.runs, run_id, RunQuery()).again_sentence)
    )
    trial = store.runs.trial(run_id, 0, 0)
    assert (trial.place, trial.losses) == ("gpu-01", ("no node", "killed"))


def test_places_are_said_in_words() -> None:
    assert place_words(HERE) == "2 workers, 3 trials under way"
    assert place_words(Place("a", "container", 1, 1, note="lost a worker: killed")) == (
        "1 container, 1 trial under way; lost a worker: killed"
    )
    assert place_words(HOSTS[2]) == "lost: no node"
    assert place_words(Place("b", "host", state="starting")) == "starting"
    assert (places_words(()), places_words((HERE,)), again_sentence(0, HOSTS)) == ("", "2 workers", "")
    lost = "because its worker or host was lost: gpu-03 (no node); model calls of the lost attempt may"
    assert f"1 trial was played again, {lost}" in again_sentence(1, HOSTS)
