"""Who plays a run holds a lease of it: the machines of a team take over what another one left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, check_exact, over, started, subject
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.process_owner import current_owner
from evaldesk.desk.runs import players
from evaldesk.desk.runs import runs as runs_module
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import is_held
from evaldesk.errors import ConflictError, WorkspaceError
from evaldesk.model import TrialResult
from evaldesk.model.stored import host_of
from evaldesk.settings import DatabaseUrl, Settings
from evaldesk.store import Store
from evaldesk.store.tables.runs import RUN

pytestmark = pytest.mark.anyio

FAR = "17 far-away 5@0badcafe"
NAMESAKE = f"17 {socket.gethostname()} 5@0badcafe"


def run_out(store: Store, run_id: int) -> None:
    with store.runs._database.writing() as connection:
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(leased_until=RUN.c.leased_until - 3600))


def played_far_away(desk: RunDesk, store: Store, owner: str = FAR) -> int:
    plan = desk.plan_for(subject(2), RunOptions())
    return store.runs.create(plan.config, plan.cases, owner)


@pytest.mark.parametrize("owner", [FAR, NAMESAKE], ids=["far away", "a machine of the same name"])
async def test_a_desk_takes_a_run_over_when_its_lease_has_run_out_and_not_before(
    open_desk: OpenDesk, store: Store, owner: str
) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    run_id = played_far_away(desk, store, owner)

    await desk._handle_requests(takes_up=True)
    await desk.start_up()
    assert not desk._playing
    with pytest.raises(ConflictError, match="played by another process"):
        await desk.resume(run_id)

    run_out(store, run_id)
    await desk._handle_requests(takes_up=True)
    summary = await over(desk, run_id)

    assert (summary.status, summary.n_passed, summary.lease) == ("finished", 2, 2)
    lost = "far-away, which was lost" if owner == FAR else f"a process on {host_of(owner)}, which is gone"
    assert summary.reason == f"Taken over from {lost}: trials that were under way there are played again."


async def test_a_run_without_a_lease_of_another_machine_is_left_alone(open_desk: OpenDesk, store: Store) -> None:
    desk = open_desk()
    run_id = played_far_away(desk, store)
    with store.runs._database.writing() as connection:
        connection.execute(update(RUN).values(leased_until=None))

    assert is_held(store.runs, store.runs.summary(run_id))


async def test_a_process_that_lives_here_keeps_its_run_however_late_it_renews(
    open_desk: OpenDesk, store: Store
) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=1)
    await executor.holds(1)
    run_out(store, run_id)

    assert is_held(store.runs, store.runs.summary(run_id))
    await open_desk()._handle_requests(takes_up=True)
    executor.end()

    assert (await over(desk, run_id)).status == "finished"


async def test_a_process_that_lost_its_run_stores_nothing_and_ends(open_desk: OpenDesk, store: Store) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=3, concurrency=3)
    await executor.holds(3)
    playing = desk._playing[run_id]
    assert store.runs.move_on(store.runs.summary(run_id), "pending", driver=FAR)

    executor.end()
    assert playing.task
    await playing.task

    summary = store.runs.summary(run_id)
    assert (summary.status, summary.driver, summary.n_passed, summary.n_todo) == ("pending", FAR, 0, 3)
    assert executor.is_cancelled
    assert "taken over" in playing.unstored


async def test_a_lost_lease_is_seen_while_no_trial_ends(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(players, "RENEW_S", 0.01)
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=1)
    await executor.holds(1)
    first = store.runs.summary(run_id).leased_until
    while (kept := store.runs.summary(run_id).leased_until) == first:
        await asyncio.sleep(0.01)
    playing = desk._playing[run_id]
    while not store.runs.move_on(store.runs.summary(run_id), "pending", driver=FAR):
        pass  # it was renewed between the two

    assert playing.task
    await playing.task

    assert first
    assert kept
    assert kept > first
    assert executor.is_cancelled
    assert store.runs.summary(run_id).driver == FAR


async def test_that_a_lease_cannot_be_renewed_is_said_once_until_it_can(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(players, "RENEW_S", 0.001)
    renew, over_twice = store.runs.renew, asyncio.Event()
    refused = iter([True] * 5 + [False] + [True] * 5)
    loop = asyncio.get_running_loop()

    def renewed(*given: object) -> bool:
        is_refused = next(refused, None)
        if is_refused is None:
            loop.call_soon_threadsafe(over_twice.set)
        if is_refused:
            raise WorkspaceError("the disk is full")
        return renew(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(store.runs, "renew", renewed)
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=1)
    await executor.holds(1)
    await over_twice.wait()
    executor.end()

    assert (await over(desk, run_id)).status == "finished"
    said = [record.getMessage() for record in caplog.records if "lease" in record.getMessage()]
    assert said == [f"run {run_id}: its lease was not renewed, which is tried again: the disk is full"] * 2


async def test_that_requests_cannot_be_read_is_said_once_until_they_can(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runs_module, "POLL_S", 0)
    desk = open_desk()
    refused = iter([True] * 5 + [False] + [True] * 5)

    async def handled(*, takes_up: bool) -> None:
        is_refused = next(refused, None)
        if is_refused is None:
            raise asyncio.CancelledError
        if is_refused:
            raise WorkspaceError("the disk is full")

    monkeypatch.setattr(desk, "_handle_requests", handled)
    with pytest.raises(asyncio.CancelledError):
        await desk.poll_requests(takes_up=True)

    said = [record.getMessage() for record in caplog.records]
    assert said == ["requests for runs cannot be read, which is tried again: the disk is full"] * 2


async def test_a_lease_that_is_renewed_while_another_looks_is_not_taken(open_desk: OpenDesk, store: Store) -> None:
    run_id = played_far_away(open_desk(), store)
    run_out(store, run_id)
    seen = store.runs.summary(run_id)
    assert not is_held(store.runs, seen)

    assert store.runs.renew(run_id, seen.lease)

    assert not store.runs.move_on(seen, "pending", driver=current_owner())
    assert store.runs.move_on(store.runs.summary(run_id), "stopping")  # whoever asks to stop takes nothing


async def test_an_old_lease_writes_nothing(open_desk: OpenDesk, store: Store) -> None:
    run_id = played_far_away(open_desk(), store)
    assert store.runs.move_on(store.runs.summary(run_id), "running", driver=current_owner())
    before = store.runs.summary(run_id)

    with pytest.raises(ConflictError, match="taken over"):
        store.runs.record([TrialResult(run_id, 0, 0, "finished", "passed")], lease=1)
    with pytest.raises(ConflictError, match="taken over"):
        store.runs.plan_confirming(run_id, {"c0"}, 1, lease=1)
    assert not store.runs.renew(run_id, 1)
    assert not store.runs.end(run_id, "finished", lease=1)

    assert replace(store.runs.summary(run_id), active_ms=before.active_ms) == before


# argv: database, name of the machine. Takes up what nobody plays until it is ended.
DRIVER = """
import asyncio, socket, sys, time
from pathlib import Path
socket.gethostname = lambda: sys.argv[2]
from evaldesk.desk.runs import players, runs
from evaldesk.engine import InlineExecutor
from evaldesk.engine.worker.player import adopt
from evaldesk.model import AgentRef
from evaldesk.settings import Settings, database_url
from evaldesk.store import Store
from evaldesk.store.runs import planning
planning.NEW_LEASE = planning.DatabaseSeconds() + 1.0
players.RENEW_S = 0.2
place = Path(sys.argv[1]) if sys.argv[1].startswith("/") else database_url(sys.argv[1], "the test")

async def answer(message):
    await asyncio.sleep(0.05)
    return message

async def main():
    adopt(AgentRef("echo", "echo:agent"), answer)
    with Store.open(place) as store:
        here = Settings(Path("/tmp"), ())
        desk = runs.RunDesk(here, store, open_executor=lambda each: InlineExecutor(each.concurrency))
        print("ready", flush=True)
        while True:
            await desk._handle_requests(takes_up=True)
            await asyncio.sleep(0.05)

asyncio.run(main())
"""


def drivers(store: Store) -> list[str]:
    return [run.driver for run in store.runs.unfinished_runs()]


def waited_for(is_so: Callable[[], bool], within_s: float = 300.0) -> None:
    until = time.monotonic() + within_s
    while not is_so() and time.monotonic() < until:
        time.sleep(0.1)


def stop_between_writes(pid: int, place: Path | DatabaseUrl) -> None:
    """Stop a process that is not writing: SQLite has one lock for all, and nobody could take over from its holder."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        if not isinstance(place, Path):
            return
        with closing(sqlite3.connect(place, timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
            else:
                connection.rollback()
                return


def play_with_losses(store: Store, place: Path | DatabaseUrl, n_losses: int) -> None:
    """Three machines play runs; now and then one is killed, or stands still for longer than its lease."""
    chance = random.Random(n_losses)
    desk = RunDesk(Settings(Path("/tmp"), ()), store)
    plan = desk.plan_for(subject(4), RunOptions(n=8 * n_losses, concurrency=2))
    run_ids: list[int] = []
    address = str(place)
    begun: list[subprocess.Popen[str]] = []
    machines: dict[str, subprocess.Popen[str]] = {}

    def begin() -> None:
        name = f"machine-{len(begun)}"
        command = [sys.executable, "-c", DRIVER, address, name]
        process = machines[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        begun.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"

    try:
        for _ in range(3):
            begin()  # before there is a run, so that the first of them does not end all
        run_ids += [store.runs.create(plan.config, plan.cases, runs_module.WAITING) for _ in range(4)]
        n_lost = 0
        while n_lost < n_losses and store.runs.unfinished_runs():
            time.sleep(chance.uniform(0.1, 0.6))
            players = {host_of(run.driver) for run in store.runs.unfinished_runs()} & machines.keys()
            if not players:  # a busy machine has not begun yet
                continue
            victim = chance.choice(sorted(players))
            n_lost += 1
            if chance.random() < 0.5:
                machines.pop(victim).kill()
                begin()
            else:
                stop_between_writes(machines[victim].pid, place)
                waited_for(lambda: victim not in map(host_of, drivers(store)))  # noqa: B023 - now; another has the run
                os.kill(machines[victim].pid, signal.SIGCONT)
        waited_for(lambda: not store.runs.unfinished_runs())
    finally:
        for process in begun:
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()

    for run_id in run_ids:
        check_exact(store, run_id)
    assert max(store.runs.summary(run_id).lease for run_id in run_ids) > 2  # one was taken over at least


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | DatabaseUrl:
    return place_of(request, tmp_path / "evaldesk.db")


@pytest.mark.long
def test_machines_that_are_lost_lose_and_double_no_trial(place: Path | DatabaseUrl) -> None:
    with Store.open(place) as store:
        play_with_losses(store, place, 3)


@pytest.mark.torture
def test_machines_that_are_lost_fifty_times_lose_and_double_no_trial(place: Path | DatabaseUrl) -> None:
    with Store.open(place) as store:
        play_with_losses(store, place, int(os.environ.get("EVALDESK_TORTURE_KILLS", "50")))


@pytest.mark.parametrize("is_stopped", [False, True], ids=["goes on", "is stopped"])
async def test_a_run_that_a_cancelled_task_of_this_process_left_unplayed_is_not_held_for_ever(
    open_desk: OpenDesk, store: Store, *, is_stopped: bool
) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    planning = await desk._plan_first(desk.plan_for(subject(2), RunOptions()))
    if is_stopped:
        await desk.stop(planning.run_id)

    await desk.take_over(planning.run_id)
    held = await desk.summary(planning.run_id)
    run_out(store, planning.run_id)
    await desk.take_over(planning.run_id)
    last = await over(desk, planning.run_id)

    assert (held.status, last.status) == (("stopping", "stopped") if is_stopped else ("pending", "finished"))
    assert (last.n_passed, last.reason) == (0 if is_stopped else 2, "")
