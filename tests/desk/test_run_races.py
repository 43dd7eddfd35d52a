"""Runs that several processes and threads change at once, and disks that say no at the wrong moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.desk.process_owner import current_owner
from evaldesk.desk.runs import driver as run_driver
from evaldesk.desk.runs import driver as run_writer
from evaldesk.desk.runs.driver import RunDriver
from evaldesk.desk.runs.plan import RunOptions, RunPlan, RunSubject
from evaldesk.desk.runs.runs import WAITING, RunDesk
from evaldesk.engine import InlineExecutor
from evaldesk.engine.worker.player import adopt, disown
from evaldesk.errors import ConflictError, WorkspaceError
from evaldesk.model import AgentRef, Case, EvalSet, Turn
from evaldesk.model.stored import RunSummary
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.database import utc_now
from evaldesk.store.runs.planning import Planning
from evaldesk.store.runs.run_store import DELETED_RUNS_KEPT
from evaldesk.store.runs.trash import hide
from evaldesk.store.tables.runs import RUN

pytestmark = pytest.mark.anyio

ECHO = AgentRef("echo", "this process:echo of races")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[RunDesk]:
    adopt(ECHO, lambda message: message)
    with Store.open(tmp_path / "evaldesk.db") as store:
        opened = RunDesk(
            Settings(tmp_path, ()),
            store,
            open_executor=lambda config: InlineExecutor(config.concurrency),
        )
        yield opened
        await opened.close()
    disown(ECHO)


@pytest.fixture
def store(desk: RunDesk) -> Store:
    return desk._store


def planned(desk: RunDesk) -> RunPlan:
    return desk.plan_for(RunSubject(ECHO, EvalSet("set", cases=(Case("c", (Turn("hello"),)),)), "set"), RunOptions())


async def over(desk: RunDesk, run_id: int) -> RunSummary:
    async for _ in desk.watch(run_id):
        pass
    return await desk.summary(run_id)


def failing(call: Callable[..., Any], n: int = 1) -> Callable[..., Any]:
    """`call`, which a full disk refuses the first `n` times."""
    left = iter(range(n))

    def sometimes(*args: Any, **options: Any) -> Any:
        if next(left, None) is not None:
            raise WorkspaceError("the disk is full")
        return call(*args, **options)

    return sometimes


async def test_a_run_that_was_stopped_before_it_was_taken_up_stays_stopped(desk: RunDesk, store: Store) -> None:
    run_id = await desk.submit(planned(desk))
    seen = await desk.summary(run_id)
    store.runs.set_status(run_id, "stopped")

    with pytest.raises(ConflictError, match="just now"):
        await desk._players.take_up(seen)

    assert (await over(desk, run_id)).status == "stopped"


async def test_a_run_that_ended_while_it_was_asked_to_stop_stays_ended(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(desk)
    run_id = store.runs.create(plan.config, plan.cases, current_owner())
    read = store.runs.summary

    def read_just_before_its_end(asked: int) -> RunSummary:
        seen = read(asked)
        store.runs.set_status(asked, "finished")
        return seen

    monkeypatch.setattr(store.runs, "summary", read_just_before_its_end)
    await desk.stop(run_id)

    assert read(run_id).status == "finished"


async def test_a_run_that_another_process_has_is_not_played(desk: RunDesk, store: Store) -> None:
    plan = planned(desk)
    run_id = store.runs.create(plan.config, plan.cases, current_owner())
    assert store.runs.move_on(store.runs.summary(run_id), "pending", driver="1 elsewhere 1")

    playing = desk._players.play(run_id)
    assert playing.task
    await playing.task

    seen = store.runs.summary(run_id)
    assert (seen.status, seen.driver) == ("pending", "1 elsewhere 1")
    assert len(store.runs.pending(run_id)) == seen.n_trials


async def test_a_process_that_lost_its_run_does_not_end_it(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(run_id: int, *_: object) -> tuple[str, str]:
        store.runs.set_status(run_id, "running", driver="1 elsewhere 1")
        return "failed", "lost"

    monkeypatch.setattr(desk._players, "_drive", lost)
    run_id = await desk.start(planned(desk))
    playing = desk._players.playing[run_id]
    assert playing.task
    await playing.task

    seen = store.runs.summary(run_id)
    assert (seen.status, seen.driver, seen.reason) == ("running", "1 elsewhere 1", "")


async def test_a_run_belongs_to_who_starts_it_from_its_first_moment(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, drivers = Planning.step, []

    def stepped(planning: Planning) -> None:
        step(planning)
        drivers.append(store.runs.summary(planning.run_id).driver)

    monkeypatch.setattr(Planning, "step", stepped)
    await over(desk, await desk.start(planned(desk)))
    await desk.submit(planned(desk))

    assert drivers == [current_owner(), WAITING]


async def test_the_end_of_a_run_is_stored_once_the_disk_takes_it(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_writer, "RETRY_S", 0.0)
    monkeypatch.setattr(store.runs, "end", failing(store.runs.end, 2))
    monkeypatch.setattr(store.runs, "move_on", failing(store.runs.move_on, 2))

    summary = await over(desk, await desk.start(planned(desk)))

    assert (summary.status, summary.reason, summary.n_done) == ("finished", "", 1)


async def test_a_run_that_could_not_be_taken_up_can_be_resumed_later(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await desk.submit(planned(desk))
    monkeypatch.setattr(store.runs, "move_on", failing(store.runs.move_on))

    with pytest.raises(WorkspaceError):
        await desk.resume(run_id)
    await desk.resume(run_id)

    assert (await over(desk, run_id)).status == "finished"


async def test_a_desk_opens_on_a_full_disk_with_a_run_that_a_dead_one_left(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(desk)
    run_id = store.runs.create(plan.config, plan.cases, "a process that ended")
    monkeypatch.setattr(store.runs, "move_on", failing(store.runs.move_on))

    await desk.start_up()
    await desk.start_up()

    assert (await over(desk, run_id)).status == "finished"


async def test_watchers_leave_a_run_that_somebody_else_took_up(desk: RunDesk, store: Store) -> None:
    run_id = await desk.submit(planned(desk))
    seen = await desk.summary(run_id)
    store.runs.set_status(run_id, "stopped")
    taking = asyncio.create_task(desk._players.take_up(seen))
    await asyncio.sleep(0)
    simulation = asyncio.create_task(over(desk, run_id))

    with pytest.raises(ConflictError):
        await taking

    assert (await simulation).status == "stopped"


async def test_a_run_deleted_before_its_turn_is_let_go(desk: RunDesk, store: Store) -> None:
    run_id, playing = await desk._begin(planned(desk))
    store.runs.delete(run_id)

    async for _ in playing.live.ticks():
        pass

    assert playing.task is not None
    await playing.task
    assert not desk._playing


async def test_a_run_deleted_before_its_turn_keeps_nobody_from_being_heard(desk: RunDesk, store: Store) -> None:
    submitted = await desk.submit(planned(desk))
    deleted, _ = await desk._begin(planned(desk))
    store.runs.delete(deleted)

    await desk._handle_requests(takes_up=True)

    assert (await over(desk, submitted)).status == "finished"


async def test_a_large_run_is_deleted_beside_the_thread_that_stores_trials(desk: RunDesk) -> None:
    run_id = await desk.start(planned(desk))
    await over(desk, run_id)
    is_deleted = threading.Event()
    storing = asyncio.create_task(desk._write(is_deleted.wait))

    await desk.delete(run_id)

    is_deleted.set()
    assert await storing


async def test_trials_that_a_slow_disk_has_not_stored_are_bounded(desk: RunDesk, store: Store) -> None:
    config = planned(desk).config
    executor = InlineExecutor(config.concurrency)
    driver = RunDriver(1, config, store, executor, writer=desk._players.writer, scrubbed=lambda result: result)
    bound = config.concurrency + run_driver.MAX_UNSTORED

    driver.in_flight.update((index, 0) for index in range(bound - 1))
    may_begin = driver._may_begin()
    driver.in_flight.add((bound, 0))

    assert (may_begin, driver._may_begin()) == (True, False)


async def test_a_deleted_run_stays_in_the_trash_for_its_time_and_goes_at_a_later_start(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, old = [await desk.submit(planned(desk)) for _ in range(2)]
    with store._database.writing() as connection:
        hide(connection, fresh, utc_now())
        hide(connection, old, utc_now() - DELETED_RUNS_KEPT - timedelta(minutes=1))

    monkeypatch.setattr("evaldesk.store.sqlite.MOST_PAGES", 1)
    await Desk(desk._settings, store, cast("Any", None))._warm_runs()

    with store._database.reading() as connection:
        assert [row.id for row in connection.execute(RUN.select())] == [fresh]
        assert connection.exec_driver_sql("PRAGMA freelist_count").scalar_one() == 0
    assert [run.id for run, _ in store.runs.deleted()] == [fresh]


async def test_a_run_of_a_machine_that_is_gone_is_stopped_when_asked_twice(desk: RunDesk, store: Store) -> None:
    plan = planned(desk)
    run_id = store.runs.create(plan.config, plan.cases, "7 a-laptop-by-its-old-name 12")
    store.runs.set_status(run_id, "running")

    with pytest.raises(ConflictError, match="7 on a-laptop-by-its-old-name; where that machine is gone, stop the run"):
        await desk.resume(run_id)
    await desk.stop(run_id)
    asked_once = (await desk.summary(run_id)).status
    await desk.stop(run_id)
    asked_twice = (await desk.summary(run_id)).status
    await desk.resume(run_id)

    assert (asked_once, asked_twice, (await over(desk, run_id)).status) == ("stopping", "stopped", "finished")


async def test_a_run_that_rests_is_offered_to_whoever_is_there(desk: RunDesk, store: Store) -> None:
    plan = planned(desk)
    run_id = store.runs.create(plan.config, plan.cases, current_owner())
    store.runs.set_status(run_id, "running")

    with pytest.raises(ConflictError, match="played by another process"):
        await desk.offer(run_id)
    store.runs.set_status(run_id, "stopped", "by hand")
    await desk.offer(run_id)
    offered = await desk.summary(run_id)
    await desk._handle_requests(takes_up=True)

    assert (offered.status, offered.driver) == ("pending", WAITING)
    assert (await over(desk, run_id)).status == "finished"
