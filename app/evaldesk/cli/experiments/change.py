"""`evaldesk experiment stop, resume, add`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from evaldesk.cli.eval.experiment import follow_experiment, more_variants, settings_of, show_estimate, variants_of
from evaldesk.cli.eval.request import EvalRequest
from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import Command, ask_trust, trust_option, workspace_option
from evaldesk.desk.desk import Desk
from evaldesk.desk.experiments.confirming import pair_to_confirm, plan_confirmation
from evaldesk.desk.experiments.estimates import estimate_of_plan
from evaldesk.desk.runs.plan import digest_of_file
from evaldesk.errors import UsageError
from evaldesk.pages.experiment_plan import budget_sentence
from evaldesk.pages.experiment_progress import read_progress
from evaldesk.run_options import BY_NAME
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@workspace_option
def stop(experiment_id: int, workspace: str | None) -> None:
    """Stop all variants of experiment ID in any process; running trials finish and count.

    \b
    evaldesk experiment stop 7
    """

    async def work(desk: Desk) -> int:
        await desk.experiments.stop(experiment_id)
        show(f"Experiment {experiment_id} is stopped; go on with: evaldesk experiment resume {experiment_id}", err=True)
        return 0

    _run(workspace, work)


BUDGET = BY_NAME["budget"]


def budget_option(command: Command) -> Command:
    """`--budget` of an experiment that was begun."""
    words = "A budget of all its trials together, in place of the earlier one."
    return click.option("--budget", metavar=BUDGET.metavar, help=words)(command)


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@budget_option
@trust_option
@workspace_option
def resume(experiment_id: int, budget: str | None, is_trusted: bool, workspace: str | None) -> None:
    """Play the remaining trials of experiment ID in their order, but those of dropped variants.

    \b
    evaldesk experiment resume 7
    """
    larger_budget = _budget_of(budget)

    async def work(desk: Desk) -> int:
        desk.poll_requests()
        await _tell_changed_set(desk, experiment_id)
        await _tell_rest(desk, experiment_id, larger_budget)
        if not await desk.experiments.resume(experiment_id, budget=larger_budget):
            show(f"Experiment {experiment_id} has no trial left to play.", err=True)
        return await follow_experiment(desk, experiment_id, EvalRequest((), workspace=workspace))

    _run(workspace, work, is_trusted=is_trusted)


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@click.option("--vary", multiple=True, required=True, metavar="OPTION=A,B", help="The options of the new variants.")
@click.option("--allow-equal", is_flag=True, help="Allow a variant that is there already.")
@budget_option
@trust_option
@workspace_option
def add(
    experiment_id: int,
    vary: tuple[str, ...],
    allow_equal: bool,
    budget: str | None,
    is_trusted: bool,
    workspace: str | None,
) -> None:
    """Add variants to experiment ID, and play them on its cases with its seed.

    \b
    evaldesk experiment add 7 --vary model=gpt-5-nano
    """
    larger_budget = _budget_of(budget)

    async def work(desk: Desk) -> int:
        desk.poll_requests()
        await _tell_changed_set(desk, experiment_id)
        await more_variants(desk, experiment_id, vary, allows_equal=allow_equal, budget=larger_budget)
        return await follow_experiment(desk, experiment_id, EvalRequest((), workspace=workspace))

    _run(workspace, work, is_trusted=is_trusted, vary=vary)


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@click.option("--budget", metavar=BUDGET.metavar, help="A budget of its trials together; none is taken over.")
@trust_option
@workspace_option
def confirm(experiment_id: int, budget: str | None, is_trusted: bool, workspace: str | None) -> None:
    """Play the leader of experiment ID against its baseline once more, with new seeds, as an experiment of its own.

    \b
    evaldesk experiment confirm 7
    """
    own_budget = _budget_of(budget)

    async def work(desk: Desk) -> int:
        desk.poll_requests()
        await _tell_changed_set(desk, experiment_id)
        results = await desk.experiments.results(experiment_id)
        names = pair_to_confirm(results.analysis)
        runs = [results.run_of(name) for name in names or ()]
        if len(runs) < 2 or any(run is None for run in runs):
            raise UsageError(f"experiment {experiment_id} has no leader and baseline with trials to confirm")
        baseline_id, leader_id = (run.id for run in runs if run)
        plan, run_plans = await plan_confirmation(desk, baseline_id, leader_id, budget=own_budget)
        show_estimate(await asyncio.to_thread(estimate_of_plan, desk.stored_runs, plan, run_plans), plan.budget)
        confirming_id = await desk.experiments.start(plan, run_plans)
        return await follow_experiment(desk, confirming_id, EvalRequest((), workspace=workspace))

    _run(workspace, work, is_trusted=is_trusted)


def _budget_of(text: str | None) -> str | None:
    """The budget of a command. Raises UsageError."""
    return None if text is None else str(BUDGET.read(text, "--budget"))


async def _tell_rest(desk: Desk, experiment_id: int, budget: str | None) -> None:
    """Tell the progress as the page does, and the budget of all trials together."""
    experiment = await desk.experiments.get(experiment_id)
    progress = await asyncio.to_thread(read_progress, desk, experiment)
    if not progress.n_todo:
        return
    show(progress.words, err=True)
    if budget := budget or experiment.plan.budget:
        spending = await asyncio.to_thread(desk.experiments.spending, experiment_id)
        show(budget_sentence(budget, *spending), err=True)


async def _tell_changed_set(desk: Desk, experiment_id: int) -> None:
    """Tell where the file of the eval set is not as the experiment has it; its own cases are played."""
    for run_id in (await desk.experiments.get(experiment_id)).run_ids[:1]:
        config = (await desk.runs.summary(run_id)).config
        path = Path(config.evalset_path)
        if not config.evalset_version or not await asyncio.to_thread(path.is_file):
            return
        if await asyncio.to_thread(digest_of_file, path) != config.evalset_version:
            words = f"{path.name} was changed since; experiment {experiment_id} goes on with its cases as they were."
            show(in_one_line(words), err=True)


def _run(
    workspace: str | None,
    work: Callable[[Desk], Awaitable[int]],
    *,
    is_trusted: bool = False,
    vary: tuple[str, ...] = (),
) -> None:
    settings = open_home(workspace)
    if vary:
        request = EvalRequest((), workspace=workspace, vary=vary)
        settings = settings_of(request, variants_of(request)[1])

    async def on_desk() -> int:
        desk = Desk.open(settings, ask_trust(settings, is_trusted=is_trusted, needs_runs_only=True))
        try:
            return await work(desk)
        finally:
            await desk.close()

    sys.exit(asyncio.run(on_desk()))
