"""Experiments: begun, stopped, resumed, extended, and read."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evaldesk.desk.experiments.exchange import experiment_parts
from evaldesk.desk.experiments.results import Results, begun_so_far, results, results_against_variant
from evaldesk.desk.experiments.revisions import remove_unused_trees
from evaldesk.desk.experiments.turns import budget_end
from evaldesk.desk.experiments.variants import MOST_VARIANTS, check_names
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model import AgentRef
from evaldesk.model.experiment import Experiment, ExperimentPlan, Variant
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store

if TYPE_CHECKING:
    from evaldesk.desk.runs.plan import RunPlan
    from evaldesk.desk.runs.runs import RunDesk


class ExperimentDesk:
    """The experiments of a workspace. Each variant is a run of its own."""

    def __init__(self, store: Store, runs: RunDesk) -> None:
        self._store = store
        self._runs = runs

    async def start(self, plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> int:
        """Store an experiment with the runs of its variants, and play them in the background; gives its id."""
        begin = partial(self._store.experiments.begin, plan)
        return await self._runs.start_together(_with_concurrency(plan, run_plans), begin)

    async def submit(self, plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> tuple[int, builtins.list[int]]:
        """Store an experiment for the process that takes it up; gives its id and those of its runs."""
        begin = partial(self._store.experiments.begin, plan)
        return await self._runs.submit_together(_with_concurrency(plan, run_plans), begin)

    async def play(
        self, experiment_id: int, on_progress: Callable[[Sequence[RunSummary]], None] = lambda _: None
    ) -> Results:
        """Wait for the end of an experiment that this process plays, and give its results.

        Cancelling it stops the experiment.
        """
        try:
            run_ids = (await self.get(experiment_id)).run_ids
            for run_id in run_ids:
                async for _ in self._runs.watch(run_id):
                    on_progress([await self._runs.summary(each) for each in run_ids])
        except asyncio.CancelledError:
            await self.stop(experiment_id, cancel=True)
            for run_id in (await self.get(experiment_id)).run_ids:
                async for _ in self._runs.watch(run_id):
                    pass
            raise
        return await self.results(experiment_id)

    def list(self, *, before: int | None = None, limit: int = 50) -> builtins.list[Experiment]:
        """Experiments, newest first; `before` ends the last page."""
        return self._store.experiments.list(before=before, limit=limit)

    def read(self, experiment_id: int, baseline: str | None = None) -> Results:
        """Its results as they are stored now, for a caller that may wait; `baseline` is the name of another variant.

        Raises NotFoundError, and UsageError for a baseline whose run was deleted.
        """
        if baseline is not None:
            return results_against_variant(self._store, experiment_id, baseline)
        return results(self._store, experiment_id)

    def file_parts(self, experiment_id: int) -> Iterator[bytes]:
        """The file of an experiment, a variant at a time. Raises NotFoundError."""
        return experiment_parts(self._store, experiment_id)

    def remove_unused_trees(self, trees: Path, agent: AgentRef, specs: Sequence[str]) -> None:
        """Remove worktrees of revisions from which no stored run was played; see `revisions`."""
        remove_unused_trees(self._store, trees, agent, specs, time.time())

    async def get(self, experiment_id: int) -> Experiment:
        """An experiment. Raises NotFoundError."""
        return await asyncio.to_thread(self._store.experiments.get, experiment_id)

    async def results(self, experiment_id: int) -> Results:
        """Its results as they are stored now. Raises NotFoundError."""
        return await asyncio.to_thread(self.read, experiment_id)

    async def stop(self, experiment_id: int, *, cancel: bool = False) -> None:
        """Start no more trials of any variant; running ones finish, or end now with `cancel`. Raises NotFoundError."""
        run_ids = (await self.get(experiment_id)).run_ids
        await asyncio.gather(*(self._runs.stop(run_id, cancel=cancel) for run_id in run_ids))

    async def resume(self, experiment_id: int, *, budget: str | None = None) -> int:
        """Play the remaining trials of all variants but dropped ones; gives their number.

        A `budget` takes the place of the earlier one, for all trials together. Raises as for a run, UsageError for a
        budget that is spent already, and ConflictError for one while the experiment goes on.
        """
        experiment = await self.get(experiment_id)
        if budget is not None:
            await self.check_start(experiment_id, budget)
            plan = replace(experiment.plan, budget=budget)
            await asyncio.to_thread(self._store.experiments.extend, experiment_id, plan, ())
        dropped_ids = {experiment.members[index].run_id for index in experiment.dropped}
        run_ids = [run_id for run_id in experiment.run_ids if run_id not in dropped_ids]
        summaries = [await self._runs.summary(run_id) for run_id in run_ids]
        to_play = [run.id for run in summaries if run.n_todo]
        n_todo = sum(run.n_todo for run in summaries)
        await self._runs.resume_together(to_play)
        return n_todo

    async def add(
        self,
        experiment_id: int,
        variants: Sequence[Variant],
        run_plans: Sequence[RunPlan],
        *,
        budget: str | None = None,
    ) -> None:
        """Add variants to an experiment, and play them; the earlier trials stay, and the grid is no full one any more.

        A `budget` takes the place of the earlier one, for all trials together. Raises UsageError, also where the budget
        is spent, and ConflictError while the experiment goes on.
        """
        experiment = await self.get(experiment_id)
        budget = budget or experiment.plan.budget
        await self.check_start(experiment_id, budget)
        earlier_variants = experiment.plan.variants
        check_names([each.name for each in (*earlier_variants, *variants)])
        if len(earlier_variants) + len(variants) > MOST_VARIANTS:
            raise UsageError(f"an experiment has at most {MOST_VARIANTS} variants", field="variants")
        all_variants = tuple(replace(each, levels=()) for each in (*earlier_variants, *variants))
        plan = replace(experiment.plan, variants=all_variants, factors=(), budget=budget)
        extend = partial(self._store.experiments.extend, experiment_id, plan)
        await self._runs.start_together(_with_concurrency(plan, run_plans), extend)

    async def check_start(self, experiment_id: int, budget: str | None) -> None:
        """Raise ConflictError while the experiment goes on, and UsageError for a budget that is spent."""
        await self._check_rest(await self.get(experiment_id))
        await self._check_budget(experiment_id, budget)

    def spending(self, experiment_id: int) -> tuple[int, float]:
        """The trials that all of its variants have so far, and their dollars. Raises NotFoundError."""
        _, n_begun, cost = begun_so_far(self._store, experiment_id)
        return n_begun, cost

    async def _check_rest(self, experiment: Experiment) -> None:
        """Raise ConflictError while a variant of it is played."""
        summaries = [await self._runs.summary(run_id) for run_id in experiment.run_ids]
        if any(run.status in LIVE for run in summaries):
            raise ConflictError(f"experiment {experiment.id} is still running; stop it first, or wait for its end")

    async def _check_budget(self, experiment_id: int, budget: str | None) -> None:
        """Raise UsageError where no further trial would begin under this budget."""
        if budget is None:
            return
        _, n_begun, cost = await asyncio.to_thread(begun_so_far, self._store, experiment_id)
        reason = budget_end(budget, n_begun, cost)
        if reason:
            raise UsageError(
                f"{reason} No further trial would begin; name a larger one for all trials together",
                field="budget",
            )


def _with_concurrency(plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> builtins.list[RunPlan]:
    """The runs with the trials at once of the whole experiment each."""
    return [replace(each, config=replace(each.config, concurrency=plan.concurrency)) for each in run_plans]
