"""A run of many cases: planned in steps while it is played, and read a page at a time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from evaldesk.desk.runs import driver as run_driver
from evaldesk.desk.runs.driver import TrialQueue
from evaldesk.desk.runs.plan import RunOptions, RunPlan, RunSubject
from evaldesk.desk.runs.runs import WAITING, RunDesk
from evaldesk.engine import InlineExecutor
from evaldesk.engine.worker.player import adopt, disown
from evaldesk.errors import ConflictError, WorkspaceError
from evaldesk.model import AgentRef, Case, EvalSet, RunConfig, TrialResult, Turn
from evaldesk.model.stored import RunSummary
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.runs import planning
from evaldesk.store.runs.planning import Planning
from evaldesk.store.tables.runs import CASE_SNAPSHOT, LAST_RUN, RUN, RUN_CASE, RUN_OUTCOME, TRIAL

pytestmark = pytest.mark.anyio

ECHO = AgentRef("echo", "this process:echo of steps")
CASES = tuple(Case(f"case {at}", (Turn(f"hello {at}"),)) for at in range(11))
N = 2


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunDesk]:
    monkeypatch.setattr(planning, "ROWS_AT_ONCE", 3 * (2 + N))  # three cases
    monkeypatch.setattr(run_driver, "PAGE", 4)
    monkeypatch.setattr(run_driver, "CASES_KEPT", 5)
    adopt(ECHO, lambda message: message)
    with Store.open(tmp_path / "evaldesk.db") as store:
        opened = RunDesk(Settings(tmp_path, ()), store, open_executor=lambda config: InlineExecutor(config.concurrency))
        yield opened
        await opened.close()
    disown(ECHO)


@pytest.fixture
def store(desk: RunDesk) -> Store:
    return desk._store


def planned(desk: RunDesk) -> RunPlan:
    return desk.plan_for(RunSubject(ECHO, EvalSet("set", cases=CASES), "set"), RunOptions(n=N))


async def over(desk: RunDesk, run_id: int) -> RunSummary:
    async for _ in desk.watch(run_id):
        pass
    return await desk.summary(run_id)


def begun(store: Store, driver: str = "") -> Planning:
    return store.runs.planning(RunConfig(ECHO, "set", n=N), CASES, driver)


def rows(store: Store, run_id: int) -> list[Any]:
    tables = (RUN_CASE, CASE_SNAPSHOT, TRIAL, LAST_RUN, RUN_OUTCOME)
    with store._database.reading() as connection:
        found = [connection.execute(select(table).where(table.c.run_id == run_id)).mappings().all() for table in tables]
    return [[{name: value for name, value in row.items() if name != "run_id"} for row in each] for each in found]


async def test_a_run_is_the_same_in_one_step_and_in_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    in_steps = store.runs.create(RunConfig(ECHO, "set", n=N), CASES)
    found = rows(store, in_steps)
    monkeypatch.setattr(planning, "ROWS_AT_ONCE", 1000)

    at_once = store.runs.create(RunConfig(ECHO, "set", n=N), CASES)

    assert begun(store).has_steps is False
    assert rows(store, at_once) == found
    assert len(found[2]) == len(CASES) * N


async def test_a_run_is_played_while_it_is_planned(desk: RunDesk, store: Store) -> None:
    run_id = await desk.start(planned(desk))
    assert store.runs.n_unplanned(run_id) == len(CASES) - 3
    assert store.runs.summary(run_id).n_todo == len(CASES) * N

    seen = await over(desk, run_id)

    assert (seen.status, seen.n_done, store.runs.n_unplanned(run_id)) == ("finished", len(CASES) * N, 0)


async def test_others_write_between_the_steps_of_a_plan(store: Store) -> None:
    other = store.runs.create(RunConfig(ECHO, "other"), CASES[:1])
    plan = begun(store)

    while not plan.is_done:
        plan.step()
        store.runs.set_note(other, f"after {plan.n_planned}")
        store.runs.record([TrialResult(plan.run_id, 0, 0, "finished", "passed")])

    assert store.runs.summary(other).note == "after 11"
    assert store.runs.summary(plan.run_id).counts.passed == 1


async def test_a_step_that_the_disk_refuses_is_tried_again(
    store: Store, desk: RunDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_cases, left = planning._plan_cases, [1, 1]

    def refused(*args: Any) -> None:
        plan_cases(*args)
        if left and args[-1][0][0]["case_index"]:
            left.pop()
            raise WorkspaceError("the disk is full")

    monkeypatch.setattr("evaldesk.desk.runs.driver.RETRY_S", 0.0)
    monkeypatch.setattr(planning, "_plan_cases", refused)
    run_id = await desk.start(planned(desk))

    assert (await over(desk, run_id)).n_done == len(CASES) * N
    assert left == []


async def test_a_run_that_was_deleted_while_it_is_planned_is_removed(store: Store) -> None:
    plan = begun(store)
    plan.step()
    store.runs.delete(plan.run_id)

    with pytest.raises(ConflictError, match="deleted or taken over while it was planned"):
        plan.step()
    store.runs.finish_deleting()

    with store._database.reading() as connection:
        assert connection.execute(select(RUN.c.id).where(RUN.c.id == plan.run_id)).all() == []


async def test_a_run_whose_process_died_while_it_was_planned_says_so_and_keeps_its_cases(
    desk: RunDesk, store: Store
) -> None:
    plan = begun(store, driver="1 gone 1")
    plan.step()
    plan.step()

    await desk._players.take_up(store.runs.summary(plan.run_id))
    seen = await over(desk, plan.run_id)

    assert (seen.status, seen.n_cases, seen.n_done) == ("failed", 6, 0)
    assert "6 of 11 cases are in it" in seen.reason
    await desk.resume(plan.run_id)
    assert (await over(desk, plan.run_id)).n_done == 6 * N


async def test_a_submitted_run_is_taken_up_when_all_of_it_is_planned(desk: RunDesk, store: Store) -> None:
    run_id = await desk.submit(planned(desk))

    seen = store.runs.summary(run_id)

    assert (seen.status, seen.driver, store.runs.n_unplanned(run_id)) == ("pending", WAITING, 0)


@pytest.mark.parametrize("seed", range(4))
async def test_the_queue_has_the_pending_trials_in_their_order(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    run_id = store.runs.create(RunConfig(ECHO, "set", n=3), CASES)
    places = [(index, trial_index) for index in range(len(CASES)) for trial_index in range(3)]
    for index, trial_index in chance.sample(places, 20):
        store.runs.record([TrialResult(run_id, index, trial_index, "finished", "passed")])
    store.runs.plan_confirming(run_id, {"case 3", "case 9"}, 2)
    queue = TrialQueue(store.runs, run_id)
    queue.look()
    found, most = [], 0

    while queue.is_read or queue.read_page():
        trial, case = queue.take()
        found.append(trial)
        most = max(most, len(queue._cases))
        assert case == CASES[trial.case_index]

    assert found == store.runs.pending(run_id)
    assert queue.n_left == 0
    assert most < len(CASES)
