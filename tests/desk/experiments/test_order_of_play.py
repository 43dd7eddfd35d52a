"""The order in which an experiment plays its cells, its one budget, one stop, held variants and early drop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.desk.runs_by_hand import HandExecutor, ended
from tests.golden_values import golden

from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.desk.experiments.results import results
from evaldesk.desk.experiments.turns import cell_rank
from evaldesk.desk.runs.plan import RunOptions, RunPlan, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import GradeSpec
from evaldesk.engine.worker.attempt import Pause
from evaldesk.model import AgentRef, Case, EvalSet, RunConfig, TrialSpec, Turn, Usage, Verdict
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio

ORDER = [tuple(cell) for cell in golden("experiments")["order_seed_7_case_variant_trial"]]
Cell = tuple[int, int, int]


class Table:
    """A workspace whose experiments end their trials at once, and note the order in which they began."""

    def __init__(self, folder: Path) -> None:
        self.begun: list[Cell] = []
        self.executors: dict[int, NotingExecutor] = {}
        self.store = Store.open(folder / "evaldesk.db")
        self.runs = RunDesk(Settings(folder, ()), self.store, open_executor=self._open)
        self.desk = ExperimentDesk(self.store, self.runs)
        self.verdicts: dict[int, Verdict] = {}
        self.cost: float | None = 0.5
        self.paused: set[int] = set()

    def _open(self, config: RunConfig) -> NotingExecutor:
        assert config.experiment
        index = config.experiment.variant_index
        self.executors[index] = executor = NotingExecutor(self, index)
        return executor

    def plans(self, n_cases: int, n_variants: int, n: int) -> list[RunPlan]:
        """The runs of variants that differ in their seed only."""
        cases = tuple(Case(f"c{at}", (Turn("hi"),)) for at in range(n_cases))
        subject = RunSubject(AgentRef("echo", "nobody:agent"), EvalSet("set", cases=cases), "set")
        return [self.runs.plan_for(subject, RunOptions(n=n, seed=at)) for at in range(n_variants)]

    async def start(self, n_cases: int, n_variants: int, n: int, **options: Any) -> int:
        """Begin an experiment."""
        variants = tuple(Variant(f"v{at}", {}) for at in range(n_variants))
        plan = ExperimentPlan("one", variants, **{"seed": 7, "concurrency": 1, "n_looks": n, **options})
        return await self.desk.start(plan, self.plans(n_cases, n_variants, n))

    async def close(self) -> None:
        """Close the workspace."""
        await self.runs.close()
        self.store.close()


class NotingExecutor(HandExecutor):
    """Ends each trial at once; those of a paused variant wait."""

    def __init__(self, table: Table, variant: int) -> None:
        super().__init__()
        self.table = table
        self.variant = variant

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """End the trial, or hold it."""
        assert isinstance(spec, TrialSpec)
        self.table.begun.append((spec.case_index, self.variant, spec.trial_index))
        if self.variant in self.table.paused:
            self.pauses = (Pause("rate limit", time.time() + 60),)
            self.held.append(spec)
            return
        usages = (Usage("m", tokens_in=1, cost=self.table.cost),)
        verdict = self.table.verdicts.get(self.variant, "passed")
        self._results.put_nowait(replace(ended(spec, verdict), usages=usages))

    def go_on(self) -> None:
        """End the held trials."""
        self.pauses = ()
        for spec in self.held:
            self._results.put_nowait(ended(spec, "passed"))
        self.held.clear()


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Table]:
    """An empty workspace."""
    opened = Table(tmp_path)
    yield opened
    await opened.close()


def in_order(n_cases: int, n_variants: int, n: int, seed: int = 7) -> list[Cell]:
    """The cells as they are planned."""
    cells = [(case, variant, trial) for trial in range(n) for case in range(n_cases) for variant in range(n_variants)]
    return sorted(cells, key=lambda cell: cell_rank(seed, cell[2], cell[0], cell[1]))


def test_the_order_is_the_known_one() -> None:
    assert in_order(2, 3, 2) == ORDER


async def test_the_cells_begin_in_the_known_order(table: Table) -> None:
    experiment_id = await table.start(2, 3, 2)

    found = await table.desk.play(experiment_id)

    assert table.begun == ORDER
    assert [run.counts.passed for run in found.runs.values()] == [4, 4, 4]
    assert {run.status for run in found.runs.values()} == {"finished"}


@pytest.mark.parametrize("concurrency", [3, 40])
async def test_variants_share_their_trials_at_once(table: Table, concurrency: int) -> None:
    experiment_id = await table.start(5, 4, 3, concurrency=concurrency)

    await table.desk.play(experiment_id)

    assert table.begun == in_order(5, 4, 3)


async def test_more_variants_than_runs_at_once_are_played_together(table: Table) -> None:
    experiment_id = await table.start(2, 12, 1)

    await table.desk.play(experiment_id)

    assert table.begun == in_order(2, 12, 1)


@pytest.mark.parametrize(("budget", "n_begun"), [("7", 7), ("3usd", 6), ("0.4usd", 1)])
async def test_no_cell_begins_at_the_budget_and_only_whole_blocks_count(
    table: Table, budget: str, n_begun: int
) -> None:
    experiment_id = await table.start(2, 2, 3, budget=budget)

    found = await table.desk.play(experiment_id)

    assert table.begun == in_order(2, 2, 3)[:n_begun]
    assert {run.status for run in found.runs.values()} == {"stopped"}
    assert all("budget" in run.reason for run in found.runs.values())
    assert (found.n_blocks, found.is_cut) == (n_begun // 4, True)
    assert {each.n_trials for each in found.analysis.rates} == {2 * (n_begun // 4)}


async def test_a_budget_in_dollars_ends_with_a_trial_that_does_not_tell_its_cost(table: Table) -> None:
    table.cost = None
    experiment_id = await table.start(2, 2, 3, budget="3usd")

    found = await table.desk.play(experiment_id)

    assert len(table.begun) == 1
    assert all("does not tell its cost" in run.reason for run in found.runs.values())


async def test_one_stop_stops_all_variants_and_resuming_plays_each_cell_once_in_order(table: Table) -> None:
    table.paused = {0, 1, 2}
    experiment_id = await table.start(4, 3, 3, concurrency=2)
    while len(table.begun) < 2:
        await asyncio.sleep(0)
    table.paused = set()

    await table.desk.stop(experiment_id)
    for executor in table.executors.values():
        executor.go_on()
    stopped = await table.desk.play(experiment_id)
    n_todo = await table.desk.resume(experiment_id)
    found = await table.desk.play(experiment_id)

    assert {run.status for run in stopped.runs.values()} == {"stopped"}
    assert n_todo == 4 * 3 * 3 - 2
    assert table.begun == in_order(4, 3, 3)
    assert {run.status for run in found.runs.values()} == {"finished"}


async def test_cells_of_a_rate_limited_variant_wait_and_the_others_go_on(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.runs.driver.PAUSE_S", 0.001)
    table.paused = {1}
    experiment_id = await table.start(3, 3, 2)
    n_others = 3 * 2 * 2
    while sum(cell[1] != 1 for cell in table.begun) < n_others:
        await asyncio.sleep(0.001)
    n_before = sum(cell[1] == 1 for cell in table.begun)
    table.paused = set()

    table.executors[1].go_on()
    found = await table.desk.play(experiment_id)

    assert n_before == 1
    assert sorted(table.begun) == sorted(in_order(3, 3, 2))
    assert [cell for cell in table.begun if cell[1] != 1] == [cell for cell in in_order(3, 3, 2) if cell[1] != 1]
    assert [run.counts.passed for run in found.runs.values()] == [6, 6, 6]


async def test_a_variant_that_is_worse_than_the_leader_is_dropped_after_a_block(table: Table) -> None:
    table.verdicts = {1: "failed"}
    experiment_id = await table.start(12, 3, 4, drops_worse=True, concurrency=5)

    found = await table.desk.play(experiment_id)

    assert found.experiment.dropped == {1: 1}
    assert [run.counts.done for run in found.runs.values()] == [48, 12, 48]
    assert found.runs[1].reason == "Dropped after 1 of 4 trials of each case: worse than the leader."
    assert (found.n_blocks, found.is_cut) == (4, False)
    assert found.analysis.difference_of("v1").word == "worse"  # type: ignore[union-attr]


async def test_a_dropped_variant_is_not_played_when_its_experiment_is_resumed(table: Table) -> None:
    table.verdicts = {1: "failed"}
    experiment_id = await table.start(12, 3, 2, drops_worse=True)
    await table.desk.play(experiment_id)

    assert await table.desk.resume(experiment_id) == 0
    assert (await table.desk.get(experiment_id)).dropped == {1: 1}


async def test_equal_variants_are_not_dropped(table: Table) -> None:
    experiment_id = await table.start(12, 3, 3, drops_worse=True)

    found = await table.desk.play(experiment_id)

    assert found.experiment.dropped == {}
    assert [run.counts.done for run in found.runs.values()] == [36, 36, 36]


async def test_a_deleted_run_leaves_its_column_and_the_others_are_compared(table: Table) -> None:
    experiment_id = await table.start(6, 3, 1)
    found = await table.desk.play(experiment_id)

    await table.runs.delete(found.runs[1].id)
    after = await table.desk.results(experiment_id)

    assert after.experiment.members[1].is_deleted
    assert after.analysis.rate_of("v1").rate is None
    assert after.analysis.may_be_best == ("v0", "v2")


async def test_added_variants_are_played_beside_the_earlier_ones(table: Table) -> None:
    experiment_id = await table.start(6, 2, 2)
    await table.desk.play(experiment_id)
    begun: Sequence[Cell] = list(table.begun)

    await table.desk.add(experiment_id, [Variant("late", {})], table.plans(6, 3, 2)[2:])
    found = await table.desk.play(experiment_id)

    assert table.begun[: len(begun)] == begun
    assert sorted(table.begun[len(begun) :]) == [(case, 2, trial) for case in range(6) for trial in range(2)]
    assert [each.name for each in found.experiment.plan.variants] == ["v0", "v1", "late"]


async def test_an_analysis_is_stored_until_a_trial_is_added(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment_id = await table.start(6, 2, 1)
    first = await table.desk.play(experiment_id)

    results(table.store, experiment_id)
    monkeypatch.delattr("evaldesk.desk.experiments.results.analyse")
    monkeypatch.delattr("evaldesk.store.runs.run_store.RunStore.strips")  # 60 variants of a large set have millions
    again = results(table.store, experiment_id)

    assert again == first
