"""The runs of an experiment from the form of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaldesk.desk.experiments.prompts import FOLDER, prompt_files
from evaldesk.desk.experiments.variants import check_names, plan_experiment, variant_options
from evaldesk.errors import VALUE_LIMIT, EvaldeskError, UsageError
from evaldesk.model import Gates
from evaldesk.model.experiment import ExperimentPlan, Factor, Variant

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.runs.plan import RunOptions, RunPlan


async def plan_experiment_of_page(
    desk: Desk,
    agent_id: str,
    evalset_id: str,
    options: RunOptions,
    variants: tuple[Variant, ...],
    *,
    name: str,
    factors: tuple[Factor, ...] = (),
    baseline: str | None = None,
    drops_worse: bool = False,
    allows_equal: bool = False,
) -> tuple[ExperimentPlan, list[RunPlan]]:
    """The experiment of an agent and an eval set by their ids, with the runs of its variants, all with one seed.

    Raises UsageError naming a variant that cannot be played, NotFoundError for a baseline that is none of them.
    """
    check_names([variant.name for variant in variants])
    _check_options(options)
    base = options.but(budget=None, gates=Gates())
    run_plans: list[RunPlan] = []
    for variant in variants:
        own = variant_options(base, variant)
        if run_plans:
            own = own.but(seed=run_plans[0].config.seed)
        try:
            run_plans.append(await desk.plan_run(agent_id, evalset_id, own))
        except EvaldeskError as error:
            raise UsageError(
                f"variant {variant.name!r}: {error}", field=getattr(error, "field", "") or "vary"
            ) from error
    plan = plan_experiment(
        name,
        variants,
        run_plans,
        factors=factors,
        baseline=baseline,
        budget=options.value("budget"),
        drops_worse=drops_worse,
        allows_equal=allows_equal,
    )
    return plan, run_plans


def _check_options(options: RunOptions) -> None:
    """Raise UsageError for an option that a single run has and an experiment has not."""
    if options.value("allocate") not in (None, "even"):
        raise UsageError("the budget of an experiment is spent in order; leave out the allocation", field="allocate")
    if not options.gates.asks_nothing:
        raise UsageError(
            "a gate is of one run, and these are variants; clear the gates, or run one variant", field="vary"
        )


def names_of(values: Sequence[str], workspace: Path) -> list[str]:
    """The values of an instruction, with the whole path of a file that `@prompts/NAME.md` names. Raises UsageError."""
    files = prompt_files(workspace)
    names = []
    for value in values:
        if value.startswith("@") and value[1:] not in files:
            there = ", ".join(files) or f"none; save one in {FOLDER}/ of the workspace"
            raise UsageError(
                f"instruction {value[:VALUE_LIMIT]}: no such file of prompts; there are: {there}", field="vary"
            )
        names.append(f"@{workspace / value[1:]}" if value.startswith("@") else value)
    return names
