"""The time of a run: what is active in it, whatever rests, crashes and clocks do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from evaldesk.model import AgentRef, Case, RunConfig, RunStatus, TrialResult
from evaldesk.store import Store

Plan = Callable[..., int]
End = Callable[..., TrialResult]

AGENT = AgentRef("hello", "agent:root_agent")


def test_active_time_adds_up_over_rests(store: Store, plan: Plan, clock: Any) -> None:
    run = plan()
    clock.move(seconds=100)
    store.runs.set_status(run, "running")
    clock.move(seconds=5)
    store.runs.set_status(run, "stopping")
    clock.move(seconds=1)
    store.runs.set_status(run, "stopped", "by hand")
    clock.move(hours=3)
    store.runs.set_status(run, "running")
    clock.move(seconds=10)

    going = store.runs.summary(run)
    store.runs.set_status(run, "finished")
    clock.move(hours=1)

    done = store.runs.summary(run)
    assert (going.active_ms, done.active_ms) == (16_000, 16_000)
    assert (going.finished_at, going.reason) == (None, "")
    assert done.started_at == datetime(2026, 11, 21, 9, 1, 40, tzinfo=UTC)
    assert done.finished_at == clock.now - timedelta(hours=1)


@pytest.mark.parametrize("status", ["pending", "stopping", "stopped"])
def test_time_after_a_crash_is_not_active(
    store: Store, plan: Plan, end: End, clock: Any, database: Path, status: RunStatus
) -> None:
    run = plan()
    store.runs.set_status(run, "running")
    clock.move(seconds=4)
    store.runs.record([end(run, 0, 0)])
    clock.move(hours=8)  # the machine was off

    with Store.open(database, clock=clock, seconds=clock.seconds) as later:
        later.runs.set_status(run, status)
        later.runs.set_status(run, "stopped")
        later.runs.set_status(run, "running")
        clock.move(seconds=1)

        assert later.runs.summary(run).active_ms == 5_000


@pytest.mark.parametrize("hours", [8, -1], ids=["sleep", "clock set back"])
def test_time_is_active_while_the_machine_is_awake_whatever_its_clock_says(
    store: Store, plan: Plan, end: End, clock: Any, hours: float
) -> None:
    run = plan()
    store.runs.set_status(run, "running")
    clock.move(seconds=4)
    clock.set(hours=hours)
    going = store.runs.summary(run)
    store.runs.record([end(run, 0, 0)])
    clock.move(seconds=2)
    clock.set(hours=hours)
    store.runs.set_status(run, "finished")

    assert (going.active_ms, store.runs.summary(run).active_ms) == (4_000, 6_000)


def test_who_asks_a_run_to_stop_leaves_its_time_to_the_process_that_plays_it(
    store: Store, plan: Plan, clock: Any, database: Path
) -> None:
    run = plan()
    store.runs.set_status(run, "running")
    clock.move(seconds=4)
    with Store.open(database, clock=clock, seconds=clock.seconds) as other:
        other.runs.set_status(run, "stopping")
        seen = other.runs.summary(run)
    clock.move(seconds=2)

    store.runs.set_status(run, "stopped")

    assert (seen.active_ms, store.runs.summary(run).active_ms) == (4_000, 6_000)


def test_time_is_not_lost_when_it_could_not_be_written_at_first(
    store: Store, plan: Plan, end: End, clock: Any, database: Path
) -> None:
    run = plan()
    store.runs.set_status(run, "running")
    clock.move(seconds=4)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TRIGGER full BEFORE UPDATE ON run BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(IntegrityError):
            store.runs.record([end(run, 0, 0)])
        connection.execute("DROP TRIGGER full")
    clock.move(seconds=2)

    store.runs.record([end(run, 0, 0)])

    assert store.runs.summary(run).active_ms == 6_000


def test_moments_come_back_in_utc(database: Path) -> None:
    abroad = datetime(2026, 11, 21, 9, 0, tzinfo=timezone(timedelta(hours=9)))
    with Store.open(database, clock=lambda: abroad) as store:
        run = store.runs.create(RunConfig(AGENT, "calc"), [Case("a")])

        created_at = store.runs.summary(run).created_at

    assert (created_at, created_at.tzinfo) == (abroad, UTC)
