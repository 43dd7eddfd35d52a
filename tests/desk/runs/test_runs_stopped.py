"""Runs that are stopped, and go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started, subject

from evaldesk.desk.runs.driver import RunWriter
from evaldesk.desk.runs.gates.conclusion import Ending
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.players import RunPlayers
from evaldesk.errors import ConflictError, WorkspaceError
from evaldesk.model import Criterion, Gates, Usage
from evaldesk.store import Store

pytestmark = pytest.mark.anyio

PRICED = (Usage("m", tokens_in=1, tokens_out=1, cost=0.6),)


async def test_stop_lets_running_trials_finish_and_resume_plays_the_rest(open_desk: OpenDesk) -> None:
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(first, second)
    run_id = await started(desk, n_cases=5, concurrency=2)
    await first.holds(2)

    await desk.stop(run_id)
    first.end(2)
    stopped = await over(desk, run_id)
    await desk.resume(run_id)
    resumed = await over(desk, run_id)

    assert (stopped.status, stopped.n_done, stopped.n_todo) == ("stopped", 2, 3)
    assert (resumed.status, resumed.n_passed) == ("finished", 5)
    assert len(second.specs) == 3


async def test_cancelled_trials_stay_planned_and_are_played_as_their_next_attempt(open_desk: OpenDesk) -> None:
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(first, second)
    run_id = await started(desk, n_cases=3, concurrency=2)
    await first.holds(2)

    await desk.stop(run_id, cancel=True)
    stopped = await over(desk, run_id)
    await desk.resume(run_id)
    resumed = await over(desk, run_id)

    assert (stopped.status, stopped.n_done) == ("stopped", 0)
    assert (resumed.status, resumed.n_passed) == ("finished", 3)
    assert sorted(spec.attempt for spec in second.specs) == [1, 2, 2]


@pytest.mark.parametrize("cancel", [False, True], ids=["after those in flight", "at once"])
async def test_a_stop_holds_while_the_disk_does_not_take_it(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch, *, cancel: bool
) -> None:
    def full(*_: object, **__: object) -> bool:
        raise WorkspaceError("the disk is full")

    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=5, concurrency=2)
    await executor.holds(2)

    with monkeypatch.context() as broken:
        broken.setattr(store.runs, "move_on", full)
        with pytest.raises(WorkspaceError, match="the disk is full"):
            await desk.stop(run_id, cancel=cancel)
    if not cancel:
        executor.end(2)
    stopped = await over(desk, run_id)

    assert (stopped.status, stopped.n_done) == ("stopped", 0 if cancel else 2)
    assert len(executor.specs) == 2


async def test_errored_trials_are_played_again(open_desk: OpenDesk) -> None:
    first, second = HandExecutor(["errored", "passed"]), HandExecutor(["passed"])
    desk = open_desk(first, second)
    run_id = await started(desk, n_cases=4)
    await over(desk, run_id)

    n = await desk.retry(run_id)
    summary = await over(desk, run_id)

    assert n == 2
    assert {spec.attempt for spec in second.specs} == {2}
    assert (summary.status, summary.n_passed, summary.n_errored) == ("finished", 4, 0)


async def test_a_run_beyond_those_at_once_waits_and_can_be_stopped(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor, n_runs_at_once=1)
    await started(desk)
    await executor.holds(3)

    waiting = await started(desk)
    before = await desk.summary(waiting)
    await desk.stop(waiting)
    after = await over(desk, waiting)

    assert before.status == "pending"
    assert (after.status, after.n_done) == ("stopped", 0)


async def test_a_run_that_was_played_to_its_end_is_left_as_it_is(open_desk: OpenDesk) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    run_id = await started(desk)
    before = await over(desk, run_id)

    await desk.resume(run_id)

    assert await over(desk, run_id) == before


async def test_a_run_that_is_resumed_twice_at_once_is_played_once(open_desk: OpenDesk) -> None:
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(first, second)
    run_id = await started(desk)
    await first.holds(3)
    await desk.stop(run_id, cancel=True)
    await over(desk, run_id)

    await asyncio.gather(desk.resume(run_id), desk.resume(run_id), desk.resume(run_id))
    summary = await over(desk, run_id)

    assert (summary.status, len(second.specs), summary.n_duplicates) == ("finished", 3, 0)


async def test_an_edited_agent_is_noted_when_a_run_goes_on(open_desk: OpenDesk, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("agent = 1\n")
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(first, second)
    plan = desk.plan_for(replace(subject(folder=str(tmp_path)), agent_version="0123456789ab"), RunOptions())
    run_id = await desk.start(plan)
    await first.holds(3)
    await desk.stop(run_id, cancel=True)
    await over(desk, run_id)

    await desk.resume(run_id)
    summary = await over(desk, run_id)

    assert summary.reason.startswith("The agent's files changed while the run rested: 0123456789ab became ")
    assert summary.config == plan.config


async def test_an_edited_eval_function_is_noted_when_a_run_goes_on(open_desk: OpenDesk, tmp_path: Path) -> None:
    rewards = tmp_path / "rewards.py"
    rewards.write_text("def word(solution_str): return 0.0\n")
    criterion = Criterion("word", 1.0, {"function": "rewards:word", "root": str(tmp_path)})
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(first, second)
    plan = desk.plan_for(subject(), RunOptions(criteria=(criterion,)))
    run_id = await desk.start(plan)
    await first.holds(3)
    await desk.stop(run_id, cancel=True)
    await over(desk, run_id)
    rewards.write_text("def word(solution_str): return 1.0\n")

    await desk.resume(run_id)
    summary = await over(desk, run_id)

    was = plan.config.functions_version
    assert summary.reason.startswith(f"The files of eval functions changed while the run rested: {was} became ")


async def test_an_interrupted_command_line_leaves_a_run_that_can_be_resumed(open_desk: OpenDesk) -> None:
    first, second = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(first, second)
    plan = desk.plan_for(subject(4), RunOptions(concurrency=2))
    task = asyncio.create_task(desk.run_to_end(plan, lambda _: None))
    await first.holds(2)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    stopped = await desk.summary(1)

    assert (stopped.status, stopped.n_done) == ("stopped", 0)


async def test_a_run_that_goes_on_cannot_be_deleted(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk)
    await executor.holds(1)

    with pytest.raises(ConflictError, match="stop it before you delete it"):
        await desk.delete(run_id)


async def test_a_submitted_run_keeps_its_limit_of_cost_and_plays_the_rest_when_a_person_resumes_it(
    open_desk: OpenDesk,
) -> None:
    executor, later = HandExecutor(), HandExecutor(["passed"])
    desk = open_desk(executor, later)
    options = RunOptions(concurrency=1, gates=Gates(max_cost=1.0))
    run_id = await desk.submit(desk.plan_for(subject(4), options))
    await desk._handle_requests(takes_up=True)
    for _ in range(2):
        await executor.holds(1)
        executor.end(1, usages=PRICED)

    stopped = await over(desk, run_id)
    await desk.resume(run_id)
    resumed = await over(desk, run_id)

    assert (stopped.status, stopped.n_passed) == ("stopped", 2)
    assert stopped.cost == pytest.approx(1.2)
    assert "more than the limit of $1" in stopped.reason
    assert (resumed.status, resumed.n_passed) == ("finished", 4)


async def test_a_run_that_is_resumed_below_its_limit_counts_what_it_has_cost(open_desk: OpenDesk) -> None:
    executor, later = HandExecutor(), HandExecutor()
    desk = open_desk(executor, later)
    run_id = await desk.start(desk.plan_for(subject(4), RunOptions(concurrency=1, gates=Gates(max_cost=1.0))))
    await executor.holds(1)
    executor.end(1, usages=PRICED)
    await executor.holds(1)
    await desk.stop(run_id, cancel=True)
    await over(desk, run_id)

    await desk.resume(run_id)
    await later.holds(1)
    later.end(1, usages=PRICED)

    summary = await over(desk, run_id)
    assert (summary.status, summary.n_passed) == ("stopped", 2)
    assert "$1.20" in summary.reason


async def test_a_run_whose_end_is_being_stored_when_it_is_stopped_is_over_all_the_same(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends_at_once(*_: object) -> Ending:
        return Ending("stopped", "before its first trial")

    monkeypatch.setattr(RunPlayers, "_drive", ends_at_once)
    write_with_retry = RunWriter.write_with_retry
    is_ending, may_end = asyncio.Event(), asyncio.Event()

    async def wait_and_write(writer: RunWriter, call: Any, *values: Any, **options: Any) -> Any:
        if getattr(call, "func", None) == store.runs.end:
            is_ending.set()
            await may_end.wait()
        return await write_with_retry(writer, call, *values, **options)

    monkeypatch.setattr(RunWriter, "write_with_retry", wait_and_write)
    desk = open_desk(HandExecutor())
    run_id = await started(desk)
    await is_ending.wait()

    await desk.stop(run_id)
    asked = await desk.summary(run_id)
    may_end.set()
    stopped = await over(desk, run_id)

    assert (asked.status, stopped.status, stopped.reason) == ("stopping", "stopped", "before its first trial")
