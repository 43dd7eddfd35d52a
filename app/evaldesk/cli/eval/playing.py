"""Plays runs for a command: one after the other, with progress, until they end or a person presses Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaldesk.cli.eval.progress import shown_progress
from evaldesk.cli.eval.request import Job
from evaldesk.desk.criteria.criteria import reaches_out
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.gates.impossible import check_gates
from evaldesk.desk.runs.gates.planned import doubtful_regressions
from evaldesk.desk.runs.model_checks import check_model_names, check_prices
from evaldesk.desk.runs.plan import RunPlan, subject_of
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import compared_plans
from evaldesk.errors import UsageError, WorkspaceError
from evaldesk.model import Gates
from evaldesk.model.comparison import Baseline
from evaldesk.model.run import CommandPart, FileOption, is_more
from evaldesk.model.stored import RunSummary
from evaldesk.pages.experiment_plan import lines_of_plan
from evaldesk.wording.forecasts import forecast_sentence, short_alarm
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show
from evaldesk.workers_ahead import end_ahead

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Played:
    """A job and the run it came to; `is_overspent` when it was stopped because its trials cost too much.

    So it is where a trial does not tell its cost, although there is a limit.
    """

    job: Job
    run: RunSummary
    is_overspent: bool = False


class Interruption:
    """The effect of Ctrl-C: the first ends the run after the trials in flight, the second ends it at once.

    The third ends this process, should the second wait for something such as a full disk.
    """

    def __init__(self, runs: RunDesk, show: Callable[[str], None]) -> None:
        self.n = 0
        self.run_id: int | None = None
        self._runs = runs
        self._show = show
        self._task = asyncio.current_task()
        self._stops: set[asyncio.Task[None]] = set()

    def __call__(self) -> None:
        """Ctrl-C was pressed."""
        self.n += 1
        if self.run_id is None:
            if self._task:
                self._task.cancel()
            return
        if self.n > 2:
            os._exit(EXIT_INTERRUPTED)  # finished trials are stored, and workers end with their parent (decision 099)
        self._show("Finishing the running trials; press Ctrl-C again to stop at once" if self.n == 1 else "Stopping")
        stop = asyncio.create_task(self._stop(self.run_id, is_at_once=self.n > 1))
        self._stops.add(stop)
        stop.add_done_callback(self._stops.discard)

    async def _stop(self, run_id: int, *, is_at_once: bool) -> None:
        try:
            await self._runs.stop(run_id, cancel=is_at_once)
        except WorkspaceError as error:
            times = "again" if is_at_once else "twice more"
            self._show(f"Stopped, but not stored: {error}; press Ctrl-C {times} to end without what is not stored")


async def play_jobs(
    desk: Desk,
    jobs: Sequence[Job],
    *,
    is_quiet: bool,
    gates: Gates,
    baseline: Baseline | None,
    files: tuple[tuple[FileOption, str], ...] = (),
) -> tuple[list[Played], list[RunPlan]]:
    """Play every job; gives the runs, and the plans that an interruption or the limit of cost kept from beginning.

    Raises AgentError, UsageError, CancelledError.
    """
    desk.poll_requests()
    desk.share_workers()
    plans = await plan_jobs(desk, jobs, gates=gates, baseline=baseline)
    plans = [replace(plan, config=replace(plan.config, files=files)) for plan in plans]
    end_ahead("player")  # nobody took it: the agent is imported elsewhere
    warn_of_false_alarms(gates, [plan for job, plan in zip(jobs, plans, strict=True) if not job.is_baseline])
    if not is_quiet:
        with contextlib.suppress(BrokenPipeError):  # a reader who leaves keeps the verdict
            await asyncio.to_thread(_show_estimates, desk, plans)
    max_cost = gates.max_cost
    played_runs: list[Played] = []
    for job, plan in zip(jobs, plans, strict=True):
        cost_spent = sum(each.run.cost for each in played_runs if each.job.is_baseline == job.is_baseline)
        cost_left = None if max_cost is None else max_cost - cost_spent
        earlier = tuple(each.run.id for each in played_runs)
        part = CommandPart(len(plans), earlier, job.is_baseline) if len(plans) > 1 else None
        own_plan = replace(plan, config=replace(plan.config, command=part))
        summary, is_interrupted = await play_plan(desk, job, own_plan, is_quiet=is_quiet, max_cost=cost_left)
        is_beyond = cost_left is not None and (is_more(summary.cost, cost_left) or summary.is_cost_unknown)
        is_overspent = not is_interrupted and summary.status == "stopped" and is_beyond
        played_runs.append(Played(job, summary, is_overspent))
        if is_interrupted or is_overspent:
            break
    return played_runs, plans[len(played_runs) :]


def _show_estimates(desk: Desk, plans: Sequence[RunPlan]) -> None:
    """Show the trials, cost, time and detectable difference of each run before any trial begins."""
    for plan in plans:
        name = f"{plan.config.agent.id}, {plan.config.evalset_name}: " if len(plans) > 1 else ""
        first, *more = lines_of_plan(desk.stored_runs, plan)
        for line in (f"{name}{first}", *more):
            show(in_one_line(line), err=True)


def warn_of_false_alarms(gates: Gates, plans: Sequence[RunPlan]) -> None:
    """Warn of a gate on regressions that fails often by chance, or may, or has a fixed bar; name the rule to take."""
    forecasts = doubtful_regressions(gates, plans)
    if forecasts is None:
        return
    own_forecast, confirm_forecast = forecasts
    n_needed, fresh = gates.confirm
    advice = "Add --regression-rule confirm"
    if n_needed:
        advice = f"--confirm {n_needed}/{fresh} ignores what each case did before; --confirm {fresh} does not"
    show(
        f"{'Warning' if own_forecast.is_frequent else 'Note'}: --max-regressions {gates.max_regressions}: "
        f"{forecast_sentence(own_forecast)} {advice}: {short_alarm(confirm_forecast)}.",
        err=True,
    )


async def plan_jobs(desk: Desk, jobs: Sequence[Job], *, gates: Gates, baseline: Baseline | None) -> list[RunPlan]:
    """The runs of the jobs, each with its part of the baseline. Raises AgentError, UsageError."""
    plans = [await plan_job(desk, job, is_cost_limited=gates.max_cost is not None) for job in jobs]
    plans = [_without_stop_rule(plan) if job.is_baseline else plan for job, plan in zip(jobs, plans, strict=True)]
    n_own = sum(not job.is_baseline for job in jobs)  # a second model plays the same cases after them
    budget = next((plan.config.budget for plan in plans if plan.config.budget), None)
    if budget and len(plans) > 1:
        raise UsageError(
            f"--budget {budget} is of one run, and these are {len(plans)}; name one agent, one model and one eval set, "
            "or say --n",
            field="budget",
        )
    if jobs and jobs[0].options.value("name") and len(plans) > 1:
        raise UsageError(
            f"--name is of one run, and these are {len(plans)}; name one agent, one model and one eval set",
            field="name",
        )
    if baseline is not None:
        plans = [*compared_plans(plans[:n_own], baseline), *compared_plans(plans[n_own:], baseline)]
    check_gates(gates, plans[:n_own])
    return plans


def _without_stop_rule(plan: RunPlan) -> RunPlan:
    """The plan of a run that plays every trial: another model is compared over all of them."""
    return replace(plan, config=replace(plan.config, gates=replace(plan.config.gates, stop_when_decided=None)))


async def plan_job(desk: Desk, job: Job, *, is_cost_limited: bool = False) -> RunPlan:
    """The run of a job, with the agent's description. Raises AgentError, UsageError."""
    desk.trust.name(job.agent)
    if job.found_criteria and reaches_out(job.options.criteria or (), job.options.user):
        desk.trust.check_criteria_file(job.agent, job.found_criteria)
    await asyncio.to_thread(desk.runs.freeze, job.options.criteria or (), job.agent.root)  # before the agent's import
    description = await desk.host.describe(job.agent)
    path = job.path.resolve()
    subject = await asyncio.to_thread(subject_of, job.agent, job.evalset, path, description, desk.settings.workspace)
    await asyncio.to_thread(desk.evalsets.follow, path)
    plan = desk.runs.plan_for(subject, job.options)
    if job.is_stored:
        plan = replace(plan, evalset=None, config=replace(plan.config, evalset_version=""))
    await check_model_names(desk.host.model_fault, plan, description)
    if is_cost_limited:
        await check_prices(desk.host.unpriced, plan, description)
    return plan


async def play_plan(
    desk: Desk, job: Job, plan: RunPlan, *, is_quiet: bool, max_cost: float | None
) -> tuple[RunSummary, bool]:
    with shown_progress(is_quiet=is_quiet) as show_moment:
        interruption = Interruption(desk.runs, lambda line: show(line, err=True))

        def on_progress(summary: RunSummary) -> None:
            interruption.run_id = summary.id
            job.on_progress(desk.stored_runs, summary)
            show_moment(summary, desk.runs.trouble(summary.id) or desk.runs.pause(summary.id))

        with on_interrupt(interruption):
            summary = await desk.runs.run_to_end(plan, on_progress, max_cost=max_cost)
        job.on_progress(desk.stored_runs, summary)  # the last trial may end after the last tick
    return summary, interruption.n > 0


@contextlib.contextmanager
def on_interrupt(call: Callable[[], None]) -> Iterator[None]:
    """Call `call` at each Ctrl-C, where this thread can."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, call)
    except (NotImplementedError, RuntimeError, ValueError):  # not here, or not in this thread
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def resume_command(run_id: int, workspace: Path) -> str:
    """The command that goes on with a run, from the folder where the person is."""
    place = "" if workspace == Path.cwd() else f" --workspace {shlex.quote(str(workspace))}"
    return f"evaldesk run resume {run_id}{place}"
