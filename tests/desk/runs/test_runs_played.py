"""Driving runs: what is played in which order, and what is stored before it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, started, subject

from evaldesk.desk.runs import driver as run_driver
from evaldesk.desk.runs import driver as run_writer
from evaldesk.desk.runs import runs
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.errors import WorkspaceError
from evaldesk.model import Case, ErrorRecord, TrialResult
from evaldesk.model.transcript import FATAL_KINDS
from evaldesk.store import Store

pytestmark = pytest.mark.anyio


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
        strips = {row.case_index: row.verdicts for row in store.runs.case_rows(run_id, sort="file")}
        shown = {(spec.case_index, spec.trial_index) for spec in executor.specs} - desk.in_flight(run_id)
        shown_early += [key for key in shown if strips[key[0]][key[1]] == "."]

    assert shown_early == []


async def test_results_that_come_together_are_stored_in_one_transaction(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    record = store.runs.record

    def counted(batch: Sequence[TrialResult], **options: int) -> int:
        sizes.append(len(batch))
        return record(batch, **options)

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


def test_every_error_that_ends_a_run_has_its_words() -> None:
    assert set(run_driver.FATAL_WORDS) == FATAL_KINDS


async def test_no_other_word_for_an_error_stops_a_run(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=4, concurrency=4)
    await executor.holds(4)

    executor.end(1, "errored", error=ErrorRecord("fatal_x", "the agent behind the address says so"))
    executor.end(3)
    summary = await over(desk, run_id)

    assert (summary.status, summary.n_errored, summary.n_passed) == ("finished", 1, 3)


async def test_a_result_that_cannot_be_scrubbed_errs_alone(open_desk: OpenDesk, store: Store) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=3, concurrency=3)
    await executor.holds(3)

    executor.end(1, logs="half \ud800")
    executor.end(2)
    summary = await over(desk, run_id)

    assert (summary.status, summary.n_errored, summary.n_passed) == ("finished", 1, 2)
    assert [group.kind for group in store.runs.error_groups(run_id)] == ["unstorable"]


async def test_finished_trials_wait_for_a_full_disk(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_writer, "RETRY_S", 0.0)
    record, troubles = store.runs.record, []

    def sometimes(batch: Sequence[TrialResult], **options: int) -> int:
        troubles.append(desk.trouble(run_id))
        if len(troubles) < 3:
            raise OSError("No space left on device")
        return record(batch, **options)

    monkeypatch.setattr(store.runs, "record", sometimes)
    desk = open_desk(HandExecutor(["passed"]))
    run_id = await started(desk, n_cases=2, concurrency=2)
    summary = await over(desk, run_id)

    assert "No space left on device" in troubles[2]
    assert (summary.status, summary.n_passed) == ("finished", 2)


async def test_who_plays_a_run_here_and_now_does_not_wait_for_a_full_disk_for_ever(
    open_desk: OpenDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise WorkspaceError("the disk is full")

    monkeypatch.setattr(runs, "FULL_DISK_S", 0.0)
    desk = open_desk(HandExecutor(["passed"]), HandExecutor(["passed"]))
    with monkeypatch.context() as broken:
        broken.setattr(store.runs, "record", full)
        broken.setattr(store.runs, "end", full)
        given_up = await desk.run_to_end(desk.plan_for(subject(2), RunOptions()), lambda _: None)
    store.runs.set_status(given_up.id, "running", driver="a process that ended")
    await desk.resume(given_up.id)
    resumed = await over(desk, given_up.id)

    assert given_up.status == "failed"
    assert given_up.reason == "the disk is full; given up after 0 min: make room, then resume the run"
    assert (resumed.status, resumed.n_passed) == ("finished", 2)


async def test_the_command_line_drives_a_run_to_its_end(open_desk: OpenDesk) -> None:
    desk = open_desk(HandExecutor(["passed"]))
    seen: list[int] = []

    plan = desk.plan_for(subject(4), RunOptions(n=2))
    summary = await desk.run_to_end(plan, lambda progress: seen.append(progress.n_done))

    assert (summary.status, summary.n_done) == ("finished", 8)
    assert seen == sorted(seen)
    assert seen[-1] == 8


def test_the_same_case_and_trial_get_the_same_seed() -> None:
    case = Case("c0")

    seeds = {run_driver.trial_seed(7, case.id, trial) for trial in range(5)}

    assert len(seeds) == 5
    assert run_driver.trial_seed(7, case.id, 0) == run_driver.trial_seed(7, case.id, 0)
    assert run_driver.trial_seed(8, case.id, 0) not in seeds
