"""`evaldesk eval AGENT EVALSET --vary OPTION=A,B`: an experiment, played to its end."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.cli.eval.playing import EXIT_INTERRUPTED, on_interrupt, plan_job
from evaldesk.cli.eval.progress import shown_progress
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.desk.desk import Desk
from evaldesk.desk.experiments.adding import check_addition, read_base
from evaldesk.desk.experiments.estimates import ExperimentEstimate, estimate_of_plan
from evaldesk.desk.experiments.revisions import agent_at, is_revision, trees_folder
from evaldesk.desk.experiments.variants import (
    AGENT,
    EVALSET,
    Level,
    baseline_index,
    check_names,
    check_overridden_options,
    grid_of,
    listed_variants,
    plan_experiment,
    usual_name,
    variant_options,
    varied_option,
)
from evaldesk.desk.imports.files import read_path
from evaldesk.desk.named_agents import named_agent, placed_again
from evaldesk.desk.runs.gates.conclusion import conclude
from evaldesk.desk.runs.handover import hand_over_experiment
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.provenance import run_digest
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.model import Gates
from evaldesk.model.experiment import ExperimentPlan, Factor, Variant
from evaldesk.model.stored import RunSummary
from evaldesk.pages.experiment_files import experiment_lines, experiment_object
from evaldesk.pages.experiment_plan import budget_sentence, estimate_lines, estimate_object
from evaldesk.settings import Settings
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.words import conclusion_words
from evaldesk.wording.writer import show, show_json


def play_experiment(request: EvalRequest, jobs: Sequence[Job]) -> int:
    """Plan the variants, play them in turn, and show their analysis; gives the exit code. Raises UsageError.

    0 when all variants were played; a gate counts for the variants of `--gate-variant` alone.
    """
    factors, variants = variants_of(request)
    check_request(request, variants)
    _check_jobs(request, jobs)
    desk = Desk.open(settings_of(request, variants))
    try:
        return asyncio.run(_play(desk, request, jobs[0], factors, variants))
    except asyncio.CancelledError:
        show("Stopped before anything was played.", err=True)
        return EXIT_INTERRUPTED


def settings_of(request: EvalRequest, variants: Sequence[Variant]) -> Settings:
    """The settings of a request that allow the models of its variants, since a person named them. Raises UsageError."""
    models = [str(each.options["model"]) for each in variants if "model" in each.options]
    return replace(request, more_models=(*request.more_models, *models)).settings()


def variants_of(request: EvalRequest) -> tuple[tuple[Factor, ...], tuple[Variant, ...]]:
    """The factors and variants of `--vary` and of several models. Raises UsageError."""
    if request.listed:
        return listed_variants(request.listed)
    options = [varied_option(text) for text in request.vary]
    if request.models:
        options.insert(0, ("model", tuple(Level(model, model) for model in request.models)))
    return grid_of(options)


def check_request(request: EvalRequest, variants: Sequence[Variant]) -> None:
    """Raise UsageError for variants that are no experiment, or a baseline or gate that is of none of them."""
    names = [variant.name for variant in variants]
    check_names(names)
    baseline_index(names, request.baseline_variant)
    for name in request.gate_variants:
        baseline_index(names, name)


def _check_jobs(request: EvalRequest, jobs: Sequence[Job]) -> None:
    """Raise UsageError for options that an experiment does not have, before the agent is imported."""
    if len(jobs) > 1:
        raise UsageError(f"an experiment has one eval set, and these are {len(jobs)}; name one", field="evalset")
    if request.files or request.outputs:
        raise UsageError("the files of an experiment are written by `evaldesk experiment show ID --json` and `--csv`")
    if request.baseline is not None:
        raise UsageError("--baseline compares one run; in an experiment say --baseline-variant NAME", field="baseline")
    if request.asked_gates and not request.gate_variants:
        raise UsageError("a gate of an experiment is one of a variant; add --gate-variant NAME", field="gate_variant")
    if request.run_options.get("allocate"):
        raise UsageError("the budget of an experiment is spent in order; leave out --allocate", field="allocate")


async def _play(
    desk: Desk, request: EvalRequest, job: Job, factors: tuple[Factor, ...], variants: tuple[Variant, ...]
) -> int:
    try:
        desk.poll_requests()
        check_overridden_options(job.options, variants)
        run_plans = await plan_variants(desk, request, job, variants)
        plan = plan_experiment(
            request.experiment or usual_name(job.evalset.name or job.evalset.id),
            variants,
            run_plans,
            factors=factors,
            baseline=request.baseline_variant,
            budget=request.run_options.get("budget"),  # type: ignore[arg-type]  # checked by its option
            drops_worse=request.drop_worse,
            allows_equal=request.allow_equal,
            gate_variants=request.gate_variants,
        )
        estimate = await asyncio.to_thread(estimate_of_plan, desk.stored_runs, plan, run_plans)
        if request.check:
            return _show_plan(plan, estimate, is_json=request.is_json)
        if not (request.quiet or request.is_json):
            show_estimate(estimate, plan.budget)
        if request.is_submitted:
            return await _submit(desk, request, plan, run_plans)
        return await _play_planned(desk, request, plan, run_plans)
    finally:
        specs = [spec for each in variants if is_revision(spec := str(each.options.get(AGENT, "")))]
        if specs:
            trees = trees_folder(desk.settings)
            await asyncio.to_thread(desk.experiments.remove_unused_trees, trees, job.agent, specs)
        await desk.close()


async def plan_variants(desk: Desk, request: EvalRequest, job: Job, variants: Sequence[Variant]) -> list[RunPlan]:
    """The runs of the variants, all with one seed. Raises UsageError naming a variant that cannot be played."""
    run_plans: list[RunPlan] = []
    for variant in variants:
        try:
            run_plans.append(
                await plan_job(desk, await asyncio.to_thread(_job_of, desk, request, job, variant, run_plans))
            )
        except EvaldeskError as error:
            words = str(error)
            sentence = words if words.startswith("variant ") else f"variant {variant.name!r}: {words}"
            raise UsageError(sentence, field=getattr(error, "field", "")) from error
    return run_plans


def _job_of(desk: Desk, request: EvalRequest, job: Job, variant: Variant, run_plans: Sequence[RunPlan]) -> Job:
    gates = job.options.gates if variant.name in request.gate_variants else Gates()
    options = variant_options(job.options.but(budget=None, gates=gates), variant)
    if run_plans:  # the trials of a case have the same seeds in all variants
        options = options.but(seed=run_plans[0].config.seed)
    agent, evalset, path = job.agent, job.evalset, job.path
    environment = options.value("environment")
    place = (request.python, request.image, environment)
    spec = str(variant.options.get(AGENT, ""))
    if spec and not is_revision(spec):
        agent = named_agent(spec, request.workspace, *place)
    elif environment != job.options.value("environment"):
        agent = placed_again(agent, desk.settings, *place)
    if is_revision(spec):
        desk.trust.name(agent)
        desk.trust.check_agent(agent)
        agent = agent_at(agent, spec, trees_folder(desk.settings))
    if EVALSET in variant.options:
        path = Path(str(variant.options[EVALSET]))
        read_evalset = read_path(path).evalset
        if read_evalset is None:
            raise UsageError(f"{path} holds a run, not an eval set")
        evalset = read_evalset
    return replace(job, agent=agent, evalset=evalset, path=path, options=options)


async def more_variants(
    desk: Desk, experiment_id: int, vary: Sequence[str], *, allows_equal: bool, budget: str | None = None
) -> None:
    """Plan further variants on the cases of the first run of an experiment, and begin them. Raises UsageError."""
    _, variants = grid_of([varied_option(text) for text in vary])
    base = await read_base(desk, experiment_id)
    request = EvalRequest(("",))
    job = Job(base.config.agent, base.evalset, Path(base.config.evalset_path), base.options)
    run_plans = [
        each if EVALSET in variant.options else base.on_stored_cases(each)
        for variant, each in zip(variants, await plan_variants(desk, request, job, variants), strict=True)
    ]
    estimate = await check_addition(desk, base, variants, run_plans, allows_equal=allows_equal, budget=budget)
    budget = budget or base.experiment.plan.budget
    spending = await asyncio.to_thread(desk.experiments.spending, experiment_id)
    show_estimate(estimate, budget, spending)
    await desk.experiments.add(experiment_id, variants, run_plans, budget=budget)


def show_estimate(estimate: ExperimentEstimate, budget: str | None, spending: tuple[int, float] = (0, 0.0)) -> None:
    """Show the estimate of an experiment on standard error, with its budget and the trials and dollars spent of it."""
    for line in estimate_lines(estimate, is_short=not budget):
        show(in_one_line(line), err=True)
    if budget:
        show(budget_sentence(budget, *spending), err=True)


def _show_plan(plan: ExperimentPlan, estimate: ExperimentEstimate, *, is_json: bool) -> int:
    if is_json:
        names = [variant.name for variant in plan.variants]
        plan_object = {"name": plan.name, "variants": names, "n_trials": estimate.n_trials, "seed": plan.seed}
        show_json({**plan_object, "estimate": estimate_object(estimate)}, indent=2)
        return 0
    show(in_one_line(f"{plan.name}: {len(plan.variants)} variants, {estimate.n_trials:,} trials"))
    for line in estimate_lines(estimate):
        show(in_one_line(line))
    return 0


async def _submit(desk: Desk, request: EvalRequest, plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> int:
    experiment_id, run_ids = await desk.experiments.submit(plan, run_plans)
    configs = [(await desk.runs.summary(run_id)).config for run_id in run_ids]
    digests = {run_id: run_digest(config) for run_id, config in zip(run_ids, configs, strict=True)}
    who = await asyncio.to_thread(
        hand_over_experiment, desk.settings, experiment_id, digests, environment=request.own_environment or None
    )
    if request.is_json:
        show_json({"id": experiment_id, "name": plan.name, "run_ids": run_ids})
        return 0
    where = "by the desk that is open" if who == "desk" else "in the background"
    show(in_one_line(f"Experiment {experiment_id}, {plan.name}, is played {where}."))
    show(f"`evaldesk experiment show {experiment_id}` shows its progress, `evaldesk experiment stop` ends it.")
    return 0


async def _play_planned(desk: Desk, request: EvalRequest, plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> int:
    experiment_id = await desk.experiments.start(plan, run_plans)
    return await follow_experiment(desk, experiment_id, request)


async def follow_experiment(desk: Desk, experiment_id: int, request: EvalRequest) -> int:
    """Show the progress of an experiment that this process plays, then its results; gives the exit code."""
    n_interrupts = 0
    stops: set[asyncio.Task[None]] = set()

    def interrupt() -> None:
        nonlocal n_interrupts
        n_interrupts += 1
        if n_interrupts > 2:
            os._exit(EXIT_INTERRUPTED)  # finished trials are stored, and workers end with their parent (decision 099)
        is_first = n_interrupts == 1
        show("Finishing the running trials; press Ctrl-C again to stop at once" if is_first else "Stopping", err=True)
        stops.add(asyncio.create_task(desk.experiments.stop(experiment_id, cancel=not is_first)))

    with shown_progress(is_quiet=request.quiet or request.is_json) as show_moment, on_interrupt(interrupt):

        def on_progress(runs: Sequence[RunSummary]) -> None:
            waits = next((words for run in runs if (words := desk.runs.trouble(run.id) or desk.runs.pause(run.id))), "")
            show_moment(_all_together(runs), waits)

        results = await desk.experiments.play(experiment_id, on_progress)
    if request.is_json:
        show_json(experiment_object(results), indent=2)
    else:
        for line in experiment_lines(results):
            show(in_one_line(line))
    runs = list(results.runs.values())
    # A run that its budget cut says so as its reason; a dropped variant is done.
    is_stopped = any(
        run.status == "stopped" and run.n_todo and not run.reason
        for index, run in results.runs.items()
        if index not in results.experiment.dropped
    )
    if n_interrupts or is_stopped:
        place = "" if request.home == Path.cwd() else f" --workspace {shlex.quote(str(request.home))}"
        if is_stopped:
            show(f"Stopped. Continue with: evaldesk experiment resume {experiment_id}{place}", err=True)
        return EXIT_INTERRUPTED
    cut = next((run for run in reversed(runs) if run.status == "stopped" and run.n_todo and run.reason), None)
    if cut and results.experiment.plan.budget:
        resume = f"evaldesk experiment resume {experiment_id} --budget {results.experiment.plan.budget}"
        show(in_one_line(f"{cut.reason} Go on with more than that of: {resume}"), err=True)
    failed = next((run for run in runs if run.status == "failed"), None)
    if failed and failed.config.experiment:
        show(in_one_line(f"{failed.config.experiment.variant}: {failed.reason}"), err=True)
    gate_variants = results.experiment.plan.gate_variants
    gone = [name for name in gate_variants if results.run_of(name) is None]
    for name in gone:
        show(in_one_line(f"{name}: undecided, since its run was deleted"), err=request.is_json)
    return max([3 if failed or gone else 0, *_gate_codes(desk, gate_variants, runs, is_json=request.is_json)])


def _gate_codes(desk: Desk, gate_variants: Sequence[str], runs: Sequence[RunSummary], *, is_json: bool) -> list[int]:
    """The exit codes of the variants whose gates count."""
    codes = []
    for run in runs:
        part = run.config.experiment
        if part is None or part.variant not in gate_variants:
            continue
        conclusion = conclude(run.config.gates, desk.stored_runs.numbers(run), None)
        show(in_one_line(f"{part.variant}: {conclusion_words(conclusion)}"), err=is_json)
        codes.append(conclusion.exit_code)
    return codes


def _all_together(runs: Sequence[RunSummary]) -> RunSummary:
    """The counts of all variants, as those of one run."""
    counts = runs[0].counts
    for run in runs[1:]:
        counts = replace(
            counts,
            planned=counts.planned + run.counts.planned,
            passed=counts.passed + run.counts.passed,
            failed=counts.failed + run.counts.failed,
            errored=counts.errored + run.counts.errored,
            unscored=counts.unscored + run.counts.unscored,
        )
    sums = {name: sum(getattr(run, name) for run in runs) for name in ("tokens_in", "tokens_out", "cost", "n_unpriced")}
    return replace(runs[0], counts=counts, **sums)
