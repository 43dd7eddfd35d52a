"""Fresh trials of a leader and of its baseline: an experiment of its own, pooled with nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from evaldesk.desk.experiments.variants import plan_experiment, usual_name
from evaldesk.desk.runs.plan import RunPlan, options_like, subject_of
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import EvalSet, Gates
from evaldesk.model.experiment import Analysis, ExperimentPlan, Variant
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.store.runs.run_store import is_playable

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk


def pair_to_confirm(analysis: Analysis) -> tuple[str, str] | None:
    """The baseline and the leader; where these are one, the leader and the variant next to it. None without a leader.

    Only variants that may be ranked are named.
    """
    if analysis.luck is None:
        return None
    leader = analysis.luck.leader
    if leader != analysis.baseline:
        return analysis.baseline, leader
    ranked = {name for pair in analysis.pairs for name in (pair.first, pair.second)}
    others = [each for each in analysis.rates if each.variant != leader and each.variant in ranked]
    rates = {each.variant: each.rate for each in others if each.rate is not None}
    return (leader, max(rates, key=rates.__getitem__)) if rates else None


async def confirm(desk: Desk, baseline_id: int, leader_id: int) -> int:
    """Play a run once more beside its baseline, with new seeds, as an experiment of its own; gives its id.

    Raises as `plan_confirmation`.
    """
    return await desk.experiments.start(*await plan_confirmation(desk, baseline_id, leader_id))


async def plan_confirmation(
    desk: Desk, baseline_id: int, leader_id: int, *, budget: str | None = None
) -> tuple[ExperimentPlan, list[RunPlan]]:
    """The experiment of a run and its baseline with new seeds, and its runs.

    Raises NotFoundError, UsageError, AgentError, TrustError.
    """
    if baseline_id == leader_id:
        raise UsageError(f"run {leader_id} is compared with itself; name two runs", field="leader")
    summaries = [await desk.runs.summary(run_id) for run_id in (baseline_id, leader_id)]
    seeds = {summary.config.seed for summary in summaries}
    seed = next(each for _ in range(1 + len(seeds)) if (each := SystemRandom().randrange(2**31)) not in seeds)
    n = max(summary.config.n for summary in summaries)
    run_plans = [await _fresh_plan(desk, summary, n, seed) for summary in summaries]
    variants = [await _variant(desk, summary) for summary in summaries]
    plan = plan_experiment(
        usual_name(f"{variants[1].name} against {variants[0].name}, fresh trials"),
        variants,
        run_plans,
        budget=budget,
        allows_equal=True,
    )
    return plan, run_plans


async def _fresh_plan(desk: Desk, summary: RunSummary, n: int, seed: int) -> RunPlan:
    """The plan of a run like this one, on its cases, with another seed and without a recording."""
    if not is_playable(summary.config):
        raise UsageError(
            f"run {summary.id} was not played here, so that it has no fresh trials; choose runs of this workspace",
            field="leader",
        )
    if summary.status in LIVE:
        raise UsageError(f"run {summary.id} is still running; wait for its end, or stop it", field="leader")
    config = await asyncio.to_thread(desk.runs.own_part, summary)
    cases = tuple(await asyncio.to_thread(desk.runs.run_store.cases, summary.id))
    evalset = EvalSet(config.evalset_id, config.evalset_name, cases=cases)
    options = options_like(config).but(
        gates=Gates(),
        n=n,
        seed=seed,
        recording="off",
        budget=None,
        allocate=None,
        shard=None,
        note="",
        expect_version=None,
    )
    await asyncio.to_thread(desk.runs.freeze, config.criteria, config.agent.root)  # before the agent's import
    description = await desk.host.describe(config.agent)
    subject = subject_of(config.agent, evalset, Path(config.evalset_path), description, desk.settings.workspace)
    plan = await asyncio.to_thread(desk.runs.plan_for, subject, options)
    # The cases are those of the run; its file may hold others by now.
    return replace(plan, evalset=None, config=replace(plan.config, set_version=config.set_version))


async def _variant(desk: Desk, summary: RunSummary) -> Variant:
    """The variant of the experiment that the run belongs to, or one by its number."""
    part = summary.config.experiment
    if part is not None:
        try:
            experiment = await desk.experiments.get(part.experiment_id)
        except NotFoundError:
            return Variant(part.variant, {})
        return Variant(part.variant, experiment.plan.variants[part.variant_index].options)
    return Variant(f"like run {summary.id}", {})
