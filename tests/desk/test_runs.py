"""Driving runs: what is stored before it is shown, stopping, resuming, and what a dead desk leaves behind."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from evaldesk.desk import run_driver, run_live, run_players
from evaldesk.desk import runs as runs_module
from evaldesk.desk.run_mark import is_alive, own_mark
from evaldesk.desk.run_plan import RunOptions, RunSubject
from evaldesk.desk.runs import RunDesk
from evaldesk.engine import Executor, GradeSpec
from evaldesk.errors import ConflictError
from evaldesk.model import AgentRef, Case, ErrorRecord, EvalSet, Score, TrialResult, TrialSpec, Turn, Verdict
from evaldesk.settings import Settings
from evaldesk.store import RunSummary, Store

pytestmark = pytest.mark.anyio

OpenDesk = Callable[..., RunDesk]


class HandExecutor:
    """Holds every trial until the test ends it, or ends all at once with `verdicts` in turn."""

    def __init__(self, verdicts: Sequence[Verdict] = ()) -> None:
        self.is_cancelled = False
        self.specs: list[TrialSpec] = []
        self.held: list[TrialSpec] = []
        self.verdicts = verdicts
        self.arrived = asyncio.Condition()
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        assert isinstance(spec, TrialSpec)
        self.specs.append(spec)
        if self.is_cancelled:
            self._results.put_nowait(ended(spec, "unscored", status="cancelled"))
        elif self.verdicts:
            self._results.put_nowait(ended(spec, self.verdicts[(len(self.specs) - 1) % len(self.verdicts)]))
        else:
            self.held.append(spec)
            async with self.arrived:
                self.arrived.notify_all()

    async def results(self) -> AsyncIterator[TrialResult]:
        while (result := await self._results.get()) is not None:
            yield result

    async def cancel(self) -> None:
        self.is_cancelled = True
        while self.held:
            self._results.put_nowait(ended(self.held.pop(), "unscored", status="cancelled"))

    async def close(self) -> None:
        await self.cancel()
        self._results.put_nowait(None)

    async def holds(self, n: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.held) >= n)

    def end(self, n: int = 1, verdict: Verdict = "passed", **values: Any) -> None:
        for _ in range(n):
            self._results.put_nowait(ended(self.held.pop(0), verdict, **values))


def ended(spec: TrialSpec, verdict: Verdict, **values: Any) -> TrialResult:
    error = ErrorRecord("agent_raised", "it broke", "Traceback") if verdict == "errored" else None
    score = Score("tool_trajectory_avg_score", 1.0 if verdict == "passed" else 0.0, None, 1.0, verdict == "passed")
    result = TrialResult(
        spec.run_id,
        spec.case_index,
        spec.trial_index,
        status="errored" if error else "finished",
        verdict=verdict,
        scores=(score,) if verdict in ("passed", "failed") else (),
        error=error,
        attempt=spec.attempt,
    )
    return replace(result, **values)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(folder / "evaldesk.db") as opened:
        yield opened


@pytest.fixture
async def open_desk(store: Store, tmp_path: Path) -> AsyncIterator[OpenDesk]:
    """Opens a desk of runs that plays with the executors given, one for each time a run is taken up."""
    desks: list[RunDesk] = []

    def open_one(*executors: HandExecutor) -> RunDesk:
        waiting = list(executors)
        desk = RunDesk(
            Settings(workspace=tmp_path, roots=(), models=("openai/big",)),
            store,
            cast("Any", None),
            cast("Any", None),
            open_executor=lambda _: cast("Executor", waiting.pop(0)),
            chance=random.Random(3),
        )
        desks.append(desk)
        return desk

    yield open_one
    for desk in desks:
        await desk.close()


def subject(n_cases: int = 3, folder: str = "") -> RunSubject:
    cases = tuple(Case(f"c{index}", (Turn("hello"),)) for index in range(n_cases))
    return RunSubject(
        AgentRef("echo", "echo:agent", folder=folder), EvalSet("set", cases=cases), "set", "/sets/dice.evalset.json"
    )


async def started(desk: RunDesk, n_cases: int = 3, **options: Any) -> int:
    return await desk.start(desk.plan_for(subject(n_cases), RunOptions(**options)))


async def over(desk: RunDesk, run_id: int) -> RunSummary:
    async for _ in desk.watch(run_id):
        pass
    return await desk.summary(run_id)


async def test_every_planned_trial_is_played_once(open_desk: OpenDesk) -> None:
    executor = HandExecutor(["passed", "failed"])
    desk = open_desk(executor)

    summary = await over(desk, await started(desk, n_cases=3, n=4))

    played = [(spec.case_index, spec.trial_index) for spec in executor.specs]
    assert sorted(played) == [(case, trial) for case in range(3) for trial in range(4)]
    assert (summary.status, summary.n_passed, summary.n_failed, summary.n_duplicates) == ("finished", 6, 6, 0)


async def test_the_first_trial_of_every_case_comes_before_the_second_of_any(open_desk: OpenDesk) -> None:
    executor = HandExecutor(["passed"])
    desk = open_desk(executor)

    await over(desk, await started(desk, n_cases=3, n=2))

    assert [spec.trial_index for spec in executor.specs] == [0, 0, 0, 1, 1, 1]


async def test_no_more_trials_are_under_way_than_the_run_allows(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)

    run_id = await started(desk, n_cases=5, concurrency=2)
    await executor.holds(2)

    assert len(executor.held) == 2
    assert len(desk.in_flight(run_id)) == 2


async def test_a_trial_stays_in_flight_until_it_is_stored(open_desk: OpenDesk, store: Store) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=4, concurrency=4)
    await executor.holds(4)
    shown_early: list[tuple[int, int]] = []

    executor.end(4)
    async for _ in desk.watch(run_id):
        strips = {row.case_index: row.strip for row in store.runs.case_rows(run_id, sort="file")}
        shown = {(spec.case_index, spec.trial_index) for spec in executor.specs} - desk.in_flight(run_id)
        shown_early += [key for key in shown if strips[key[0]][key[1]] == "."]

    assert shown_early == []


async def test_results_that_come_together_are_stored_in_one_transaction(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    record = store.runs.record

    def counted(batch: Sequence[TrialResult]) -> int:
        sizes.append(len(batch))
        return record(batch)

    monkeypatch.setattr(store.runs, "record", counted)
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=250, concurrency=250)
    await executor.holds(250)

    executor.end(250)
    await over(desk, run_id)

    assert sum(sizes) == 250
    assert max(sizes) <= run_driver.BATCH_SIZE
    assert len(sizes) <= 4


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


async def test_a_run_left_behind_by_a_dead_desk_loses_nothing_and_doubles_nothing(
    open_desk: OpenDesk, store: Store
) -> None:
    desk = open_desk()
    plan = desk.plan_for(subject(4), RunOptions(n=5))
    run_id = store.runs.create(plan.config, plan.cases)
    store.runs.set_status(run_id, "running", driver=f"999999999 {own_mark().split(' ')[1]} 1")
    before = [_spec_of(run_id, plan.cases[case], case, 0) for case in (0, 2, 3)]
    store.runs.record([ended(spec, "failed") for spec in before])
    executor = HandExecutor(["passed"])

    heir = open_desk(executor)
    await heir.start_up()
    summary = await over(heir, run_id)

    played = {(spec.case_index, spec.trial_index) for spec in executor.specs}
    assert len(executor.specs) == len(played) == 17
    assert not played & {(0, 0), (2, 0), (3, 0)}
    assert (summary.status, summary.n_passed, summary.n_failed, summary.n_duplicates) == ("finished", 17, 3, 0)


async def test_a_run_of_a_living_process_is_left_alone(open_desk: OpenDesk, store: Store) -> None:
    desk = open_desk()
    plan = desk.plan_for(subject(), RunOptions())
    run_id = store.runs.create(plan.config, plan.cases)
    store.runs.set_status(run_id, "running", driver=own_mark())

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
    await driving._heed(takes_up=False)
    executor.end(1)

    summary = await over(driving, run_id)
    assert (summary.status, summary.n_done, len(executor.specs)) == ("stopped", 1, 1)


async def test_a_submitted_run_is_taken_up_once(open_desk: OpenDesk) -> None:
    plan = open_desk().plan_for(subject(), RunOptions())
    run_id = await open_desk().submit(plan)
    executors = [HandExecutor(["passed"]), HandExecutor(["passed"])]
    desks = [open_desk(executor) for executor in executors]

    await asyncio.gather(*(desk._heed(takes_up=True) for desk in desks))

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
    monkeypatch.setattr(runs_module, "is_alive", lambda _: False)  # the mark is of this very process, which lives
    await heir.start_up()
    summary = await over(heir, run_id)

    assert left.status == "running"
    assert (summary.status, summary.n_passed, summary.n_duplicates) == ("finished", 3, 0)


async def test_a_model_that_refuses_for_good_stops_the_run_once(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=10, concurrency=3)
    await executor.holds(3)
    refused = ErrorRecord("authentication", "Incorrect API key provided.\nDetails follow.")

    executor.end(2, "errored", error=refused)
    summary = await over(desk, run_id)

    assert summary.status == "failed"
    assert summary.reason == (
        "The model's provider does not accept the key, so no more trials were started: Incorrect API key provided."
    )
    assert (summary.n_errored, summary.n_todo) == (1, 9)


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


async def test_finished_trials_wait_for_a_full_disk(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_driver, "RETRY_S", 0.0)
    record, troubles = store.runs.record, []

    def sometimes(batch: Sequence[TrialResult]) -> int:
        troubles.append(desk.trouble(run_id))
        if len(troubles) < 3:
            raise OSError("No space left on device")
        return record(batch)

    monkeypatch.setattr(store.runs, "record", sometimes)
    desk = open_desk(HandExecutor(["passed"]))
    run_id = await started(desk, n_cases=2, concurrency=2)
    summary = await over(desk, run_id)

    assert "No space left on device" in troubles[2]
    assert (summary.status, summary.n_passed) == ("finished", 2)


async def test_a_run_beyond_those_at_once_waits_and_can_be_stopped(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_players, "MAX_RUNS_AT_ONCE", 1)
    executor = HandExecutor()
    desk = open_desk(executor)
    await started(desk)
    await executor.holds(3)

    waiting = await started(desk)
    before = await desk.summary(waiting)
    await desk.stop(waiting)
    after = await over(desk, waiting)

    assert before.status == "pending"
    assert (after.status, after.n_done) == ("stopped", 0)


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


async def test_watchers_of_a_run_share_each_tick(open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_live, "TICK_S", 0.0)
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=2, concurrency=2)
    await executor.holds(2)
    one, other = desk.watch(run_id), desk.watch(run_id)

    first = (await anext(one), await anext(other))
    executor.end(2)
    rest = ([tick async for tick in one], [tick async for tick in other])

    assert first[0] is first[1]
    assert rest[0][-1] is rest[1][-1]
    assert rest[0][-1].is_last


async def test_a_run_that_is_over_has_one_last_tick(open_desk: OpenDesk) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    run_id = await started(desk)
    await over(desk, run_id)

    assert [tick.is_last async for tick in desk.watch(run_id)] == [True]


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


async def test_the_command_line_drives_a_run_to_its_end(open_desk: OpenDesk) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    seen: list[int] = []

    plan = desk.plan_for(subject(4), RunOptions(n=2))
    summary = await desk.run_to_end(plan, lambda progress: seen.append(progress.n_done))

    assert (summary.status, summary.n_done) == ("finished", 8)
    assert seen == sorted(seen)
    assert seen[-1] == 8


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


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("", False),
        ("x y z", False),
        (own_mark(), True),
        (f"{os.getpid()} {own_mark().split(' ')[1]} 1", False),
        (f"999999999 {own_mark().split(' ')[1]} 1", False),
        ("1 another-machine 5", True),
    ],
    ids=["none", "no pid", "this process", "a reused pid", "a dead pid", "another machine"],
)
def test_a_mark_tells_whether_its_process_lives(mark: str, expected: bool) -> None:
    assert is_alive(mark) is expected


def test_the_same_case_and_trial_get_the_same_seed() -> None:
    case = Case("c0")

    seeds = {run_driver.trial_seed(7, case, trial) for trial in range(5)}

    assert len(seeds) == 5
    assert run_driver.trial_seed(7, case, 0) == run_driver.trial_seed(7, case, 0)
    assert run_driver.trial_seed(8, case, 0) not in seeds


def _spec_of(run_id: int, case: Case, case_index: int, trial_index: int) -> TrialSpec:
    return TrialSpec(run_id, case_index, trial_index, case, AgentRef("echo", "echo:agent"))
