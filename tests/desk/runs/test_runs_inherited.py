"""Runs that change hands: what a dead or closed desk leaves behind, and what a living one keeps."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, ended, over, started, subject

from evaldesk.desk.process_owner import current_owner, is_owner_alive
from evaldesk.desk.runs import runs as runs_module
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.errors import ConflictError
from evaldesk.model import AgentRef, Case, TrialSpec
from evaldesk.store import Store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_opened_again", [True, False], ids=["a desk is opened again", "another desk is open"])
async def test_a_run_left_behind_by_a_dead_desk_loses_nothing_and_doubles_nothing(
    open_desk: OpenDesk, store: Store, *, is_opened_again: bool
) -> None:
    desk = open_desk()
    plan = desk.plan_for(subject(4), RunOptions(n=5))
    run_id = store.runs.create(plan.config, plan.cases)
    store.runs.set_status(run_id, "running", driver=f"999999999 {current_owner().split(' ')[1]} 1")
    before = [_spec_of(run_id, plan.cases[case], case, 0) for case in (0, 2, 3)]
    store.runs.record([ended(spec, "failed") for spec in before])
    executor = HandExecutor(["passed"])

    heir = open_desk(executor)
    await (heir.start_up() if is_opened_again else heir._handle_requests(takes_up=True))
    summary = await over(heir, run_id)

    host = current_owner().split(" ")[1]
    words = f"Taken over from a process on {host}, which is gone: trials that were under way there are played again."
    assert summary.reason == ("" if is_opened_again else words)
    played = {(spec.case_index, spec.trial_index) for spec in executor.specs}
    assert len(executor.specs) == len(played) == 17
    assert not played & {(0, 0), (2, 0), (3, 0)}
    assert (summary.status, summary.n_passed, summary.n_failed, summary.n_duplicates) == ("finished", 17, 3, 0)


def _spec_of(run_id: int, case: Case, case_index: int, trial_index: int) -> TrialSpec:
    return TrialSpec(run_id, case_index, trial_index, case, AgentRef("echo", "echo:agent"))


async def test_a_run_of_a_living_process_is_left_alone(open_desk: OpenDesk, store: Store) -> None:
    desk = open_desk()
    plan = desk.plan_for(subject(), RunOptions())
    run_id = store.runs.create(plan.config, plan.cases)
    store.runs.set_status(run_id, "running", driver=current_owner())

    await desk.start_up()

    assert desk.in_flight(run_id) == frozenset()
    with pytest.raises(ConflictError, match="played by another process"):
        await desk.resume(run_id)
    with pytest.raises(ConflictError, match="played by another process"):
        await desk.retry(run_id)


async def test_a_run_of_another_process_is_stopped_by_that_one(open_desk: OpenDesk, store: Store) -> None:
    executor = HandExecutor()
    driving, asking = open_desk(executor), open_desk()
    run_id = await started(driving, n_cases=3, concurrency=1)
    await executor.holds(1)

    await asking.stop(run_id)
    await driving._handle_requests(takes_up=False)
    executor.end(1)

    summary = await over(driving, run_id)
    assert (summary.status, summary.n_done, len(executor.specs)) == ("stopped", 1, 1)


async def test_a_submitted_run_is_taken_up_once(open_desk: OpenDesk) -> None:
    plan = open_desk().plan_for(subject(), RunOptions())
    run_id = await open_desk().submit(plan)
    executors = [HandExecutor(["passed"]), HandExecutor(["passed"])]
    desks = [open_desk(executor) for executor in executors]

    await asyncio.gather(*(desk._handle_requests(takes_up=True) for desk in desks))

    for desk in desks:
        assert (await over(desk, run_id)).status == "finished"
    assert sorted(len(executor.specs) for executor in executors) == [0, plan.n_trials]


async def test_a_closed_desk_leaves_its_run_to_the_next_one(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk, heir = open_desk(first), open_desk(second)
    run_id = await started(desk, n_cases=3, concurrency=1)
    await first.holds(1)
    first.end(1)
    await first.holds(1)

    await desk.close()
    left = await heir.summary(run_id)
    monkeypatch.setattr(runs_module, "is_held", lambda *_: False)  # the mark is of this very process, which lives
    await heir.start_up()
    summary = await over(heir, run_id)

    assert left.status == "running"
    assert (summary.status, summary.n_passed, summary.n_duplicates) == ("finished", 3, 0)


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("", False),
        ("x y z", False),
        (current_owner(), True),
        (f"{os.getpid()} {current_owner().split(' ')[1]} 1", False),
        (f"999999999 {current_owner().split(' ')[1]} 1", False),
        ("1 another-machine 5", True),
    ],
    ids=["none", "no pid", "this process", "a reused pid", "a dead pid", "another machine"],
)
def test_an_owner_is_alive_while_its_process_runs(mark: str, expected: bool) -> None:
    assert is_owner_alive(mark) is expected
