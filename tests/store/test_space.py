"""The space of removed runs goes back to the disk, in short steps that others may write between."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from evaldesk.model import Event, Transcript, TrialResult, TurnRecord
from evaldesk.store import Store
from evaldesk.store.sqlite import MOST_PAGES

Plan = Callable[..., int]
End = Callable[..., TrialResult]

N_TRIALS = 60
CHANCE = random.Random(7)


def fill(store: Store, plan: Plan, end: End) -> int:
    """A run whose transcripts take some 6 MB on the disk, whatever packs them."""
    run = plan(n_cases=N_TRIALS, n=1)
    store.runs.set_status(run, "running")
    for index in range(N_TRIALS):
        text = CHANCE.randbytes(100_000).hex()
        turn = TurnRecord("Roll.", (Event("agent_message", text=text),))
        store.runs.record([replace(end(run, index, 0), transcript=Transcript((turn,)))])
    store.runs.set_status(run, "finished")
    return run


def remove(store: Store, run: int) -> None:
    store.runs.delete(run)
    store.runs.remove_deleted()


@pytest.fixture
def steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """By how many pages each writing transaction shortened the file."""
    found: list[int] = []
    writing = store._database.writing

    @contextmanager
    def counted() -> Iterator[Connection]:
        with writing() as connection:
            before = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            yield connection
            found.append(before - connection.exec_driver_sql("PRAGMA page_count").scalar_one())

    monkeypatch.setattr(store._database, "writing", counted)
    return found


@pytest.mark.long
def test_the_file_is_shorter_by_what_was_given_back(store: Store, database: Path, plan: Plan, end: End) -> None:
    kept = fill(store, plan, end)
    store._database.write_log_back()
    small = database.stat().st_size
    removed = fill(store, plan, end)
    store._database.write_log_back()
    large = database.stat().st_size
    remove(store, removed)

    space = store.give_back()

    assert large - small > 5_000_000
    assert space.n_given_back > 0.95 * (large - small)
    assert (space.n_kept, database.stat().st_size) == (0, large - space.n_given_back)
    assert store.runs.summary(kept).n_done == N_TRIALS
    store.check()


def test_each_step_is_short_and_another_process_writes_between(
    store: Store, database: Path, plan: Plan, end: End, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fill(store, plan, end)
    remove(store, run)
    steps.clear()
    with Store.open(database) as other:
        monkeypatch.setattr("evaldesk.store.sqlite.time.sleep", lambda _: other.sessions.create("hello"))
        store.give_back()

        assert len(other.sessions.list()) == len(steps) > 4
    assert max(steps) <= MOST_PAGES + 1  # and a page of SQLite's own list of pages


@pytest.mark.long
def test_what_a_kill_left_is_given_back_by_the_next_call(
    store: Store, plan: Plan, end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fill(store, plan, end)
    remove(store, run)

    def kill(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("evaldesk.store.sqlite.time.sleep", kill)
        with pytest.raises(KeyboardInterrupt):
            store.give_back()

    assert store.give_back().n_given_back > 4_000_000
    store.check()


def test_little_free_space_is_left_for_later_rows(store: Store, plan: Plan, steps: list[int]) -> None:
    remove(store, plan())
    steps.clear()

    space = store.give_back()

    assert (space.n_given_back, steps) == (0, [])


@pytest.mark.long
def test_a_file_of_an_earlier_version_keeps_its_space_and_uses_it_again(
    store: Store, database: Path, plan: Plan, end: End
) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA auto_vacuum=NONE").close()
        connection.execute("VACUUM").close()
    remove(store, fill(store, plan, end))
    store._database.write_log_back()
    large = database.stat().st_size

    space = store.give_back()
    fill(store, plan, end)
    store._database.write_log_back()

    assert space.n_given_back == 0
    assert space.n_kept > 5_000_000
    assert database.stat().st_size < 1.1 * large
