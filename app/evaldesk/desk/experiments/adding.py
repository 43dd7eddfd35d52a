"""Further variants of an experiment: planned on the cases of its first run, and checked beside the earlier ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evaldesk.desk.experiments.estimates import ExperimentEstimate, estimate_of_addition
from evaldesk.desk.experiments.variants import check_unused_options, check_variants, variant_options
from evaldesk.desk.runs.model_checks import check_model_names
from evaldesk.desk.runs.plan import RunOptions, RunPlan, options_like, subject_of
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.model import Case, EvalSet, RunConfig
from evaldesk.model.experiment import Experiment, Variant

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk


@dataclass(frozen=True, slots=True)
class AdditionBase:
    """An experiment with the configuration and the cases of its first run, which further variants share.

    `options` are those of that run; each variant changes some of them.
    """

    experiment: Experiment
    config: RunConfig
    cases: tuple[Case, ...]
    options: RunOptions

    @property
    def evalset(self) -> EvalSet:
        """The cases as they were played, whatever their file holds by now."""
        return EvalSet(self.config.evalset_id, self.config.evalset_name, cases=self.cases)

    def on_stored_cases(self, plan: RunPlan) -> RunPlan:
        """The plan as one of the eval set whose stored cases it plays."""
        config = replace(
            plan.config,
            evalset_id=self.config.evalset_id,
            evalset_path=self.config.evalset_path,
            evalset_version=self.config.evalset_version,
            set_version=self.config.set_version,
        )
        return replace(plan, evalset=None, config=config)


async def read_base(desk: Desk, experiment_id: int) -> AdditionBase:
    """What variants are added to. Raises NotFoundError, and UsageError where all of its runs were deleted."""
    experiment = await desk.experiments.get(experiment_id)
    if not experiment.run_ids:
        raise UsageError(f"all runs of experiment {experiment_id} were deleted; begin a new one", field="variants")
    summary = await desk.runs.summary(experiment.run_ids[0])
    config = await asyncio.to_thread(desk.runs.own_part, summary)
    cases = tuple(await asyncio.to_thread(desk.runs.run_store.cases, summary.id))
    return AdditionBase(experiment, config, cases, options_like(config).but(budget=None, allocate=None, note=""))


async def plan_addition(desk: Desk, base: AdditionBase, variants: Sequence[Variant]) -> list[RunPlan]:
    """The runs of variants of the same agent and cases.

    Raises UsageError naming a variant that cannot be played, AgentError, TrustError.
    """
    config = base.config
    await asyncio.to_thread(desk.runs.freeze, config.criteria, config.agent.root)  # before the agent's import
    path = Path(config.evalset_path)
    run_plans = []
    for variant in variants:
        try:
            options = variant_options(base.options, variant)
            agent = config.agent
            if options.value("environment") != base.options.value("environment"):
                described_agent = await desk.agents.get_described_agent(agent.id)
                agent = (await desk.agents.described_in(described_agent, options.value("environment"))).ref
            description = await desk.host.describe(agent)
            file = path if config.evalset_path and path.is_file() else None
            subject = await asyncio.to_thread(
                subject_of, agent, base.evalset, file, description, desk.settings.workspace
            )
            plan = await asyncio.to_thread(desk.runs.plan_for, subject, options)
            await check_model_names(desk.host.model_fault, plan, description)
        except EvaldeskError as error:
            sentence = str(error) if str(error).startswith("variant ") else f"variant {variant.name!r}: {error}"
            raise UsageError(sentence, field=getattr(error, "field", "") or "vary") from error
        run_plans.append(base.on_stored_cases(plan))
    return run_plans


async def check_addition(
    desk: Desk,
    base: AdditionBase,
    variants: Sequence[Variant],
    run_plans: Sequence[RunPlan],
    *,
    allows_equal: bool,
    budget: str | None,
) -> ExperimentEstimate:
    """The estimate of further variants that may be played beside the earlier ones.

    Raises UsageError for equal variants, an option that changes nothing and a budget that is spent, and ConflictError
    while the experiment goes on.
    """
    experiment = base.experiment
    plan = replace(experiment.plan, variants=(*experiment.plan.variants, *variants))
    check_unused_options(plan.variants, {each.name: own for each, own in zip(variants, run_plans, strict=True)})
    earlier_plans = [RunPlan((await desk.runs.summary(each)).config, base.cases) for each in experiment.run_ids]
    if len(earlier_plans) == len(experiment.plan.variants):
        check_variants(plan, [*earlier_plans, *run_plans], allows_equal=allows_equal)
    await desk.experiments.check_start(experiment.id, budget or experiment.plan.budget)
    return await asyncio.to_thread(estimate_of_addition, desk.stored_runs, experiment.plan, variants, run_plans)
