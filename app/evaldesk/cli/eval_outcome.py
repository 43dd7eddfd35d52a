"""The end of `evaldesk eval`: what is printed, which gates held, what is written, and the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import ParamSpec, TypeAlias, TypeVar

import click

from evaldesk.cli.baselines import read_baseline
from evaldesk.cli.broken_pipe import reader_may_leave
from evaldesk.cli.eval_check import check_jobs
from evaldesk.cli.eval_report import report_error, show_details, show_result
from evaldesk.cli.eval_request import EvalRequest, Job
from evaldesk.cli.output_files import check_outputs, show_annotations, write_outputs
from evaldesk.cli.playing import EXIT_INTERRUPTED, Played, play_jobs, resume_command
from evaldesk.cli.result_json import result_json
from evaldesk.desk.desk import Desk
from evaldesk.desk.run_numbers import joined_numbers, run_numbers
from evaldesk.errors import AgentError, UsageError
from evaldesk.report.gates import Baseline, GateOutcome, Gates, judge_gates
from evaldesk.report.turn_text import in_one_line
from evaldesk.store import Store

P = ParamSpec("P")
T = TypeVar("T")
ShowMore: TypeAlias = Callable[[Store, Sequence[Played]], None]
EXIT_PASSED, EXIT_NOT_PASSED, EXIT_ERRORS = 0, 1, 3


def nothing_more(store: Store, played: Sequence[Played]) -> None:
    """There is nothing else to show."""


def play_and_judge(request: EvalRequest, jobs: Sequence[Job], *, show_more: ShowMore = nothing_more) -> int:
    """Play, show, judge, write; gives the exit code. What can be refused is refused before anything is played."""
    gates = request.gates
    check_outputs(request)
    desk = Desk.open(request.settings())
    try:
        baseline = read_baseline(desk.store, request.baseline) if request.baseline is not None else None
    except BaseException:
        desk.store.close()
        raise
    try:
        return asyncio.run(_play_and_judge(desk, request, jobs, gates, baseline, show_more))
    except asyncio.CancelledError:
        click.echo("Stopped before anything was played.", err=True)
        return EXIT_INTERRUPTED


async def _play_and_judge(
    desk: Desk,
    request: EvalRequest,
    jobs: Sequence[Job],
    gates: Gates,
    baseline: Baseline | None,
    show_more: ShowMore,
) -> int:
    try:
        try:
            if request.check:
                is_cost_limited = gates.max_cost is not None
                return await check_jobs(desk, jobs, is_json=request.is_json, is_cost_limited=is_cost_limited)
            played = await play_jobs(desk, jobs, is_quiet=request.quiet or request.is_json, max_cost=gates.max_cost)
        except AgentError as error:
            report_error(jobs[0].agent.id, error)
            return EXIT_ERRORS
        ending = _inside(click.get_current_context(silent=True), conclude)
        return await asyncio.to_thread(ending, desk, request, played, gates, baseline, show_more)
    finally:
        await desk.close()


def conclude(
    desk: Desk,
    request: EvalRequest,
    played: Sequence[Played],
    gates: Gates,
    baseline: Baseline | None,
    show_more: ShowMore,
) -> int:
    """Judge the gates, write the files that were asked for, and show what was played as long as somebody reads."""
    own = [each for each in played if not each.job.is_baseline]
    numbers = joined_numbers([run_numbers(desk.store, each.run) for each in own])
    outcomes = judge_gates(gates, numbers, baseline)
    is_whole = all(each.run.status == "finished" or each.is_overspent for each in played)
    trouble: UsageError | None = None
    try:
        write_outputs(desk.store, request, played, outcomes, baseline)
    except UsageError as error:  # said after the verdict, which is worth more
        trouble = error
    with reader_may_leave():
        if request.is_json:
            click.echo(result_json(desk.store, own, outcomes))
        else:
            _show(desk, request, played)
            show_more(desk.store, played)
            _show_gates(outcomes if not gates.asks_nothing else ())
        if request.annotations:
            show_annotations(desk.store, own, outcomes, is_json=request.is_json)
    left = next((each for each in played if each.run.status == "stopped"), None)
    if left:
        _say_how_to_resume(left, request)
    if trouble:
        raise trouble
    if left and not left.is_overspent:
        return EXIT_INTERRUPTED
    return exit_code(outcomes, is_whole=is_whole)


def _inside(context: click.Context | None, call: Callable[P, T]) -> Callable[P, T]:
    """`call` for another thread, in the context of this one: it says whether there are colours."""

    def inside(*arguments: P.args, **options: P.kwargs) -> T:
        with context.scope(cleanup=False) if context else nullcontext():
            return call(*arguments, **options)

    return inside


def exit_code(outcomes: Sequence[GateOutcome], *, is_whole: bool) -> int:
    """0 when every gate held; 3 when errors exceed what is tolerated or a run broke off; else 1."""
    if not is_whole or any(outcome.is_of_errors and not outcome.is_held for outcome in outcomes):
        return EXIT_ERRORS
    return EXIT_PASSED if all(outcome.is_held for outcome in outcomes) else EXIT_NOT_PASSED


def _show(desk: Desk, request: EvalRequest, played: Sequence[Played]) -> None:
    for each in played:
        if len(played) > 1:
            click.echo(click.style(in_one_line(each.job.evalset.name or each.job.evalset.id), bold=True))
        if request.print_detailed_results:
            show_details(desk.store, each.run)
        show_result(desk.store, each.run, is_quiet=request.quiet)


def _show_gates(outcomes: Sequence[GateOutcome]) -> None:
    for outcome in outcomes:
        mark = click.style("✓ held  ", fg="green") if outcome.is_held else click.style("✗ failed", fg="red")
        click.echo(f"{mark} {outcome.name}: {outcome.sentence}")


def _say_how_to_resume(left: Played, request: EvalRequest) -> None:
    run = left.run
    click.echo(
        f"Stopped: {run.n_done:,} of {run.n_trials:,} trials are done and stored. "
        f"Go on with: {resume_command(run.id, request.home)}",
        err=True,
    )
