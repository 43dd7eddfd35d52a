"""`evaldesk run stop, resume, retry, rescore, rm`: changes of a stored run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import click

from evaldesk.cli.eval.outcome import show_conclusion, write_files
from evaldesk.cli.eval.playing import Interruption, on_interrupt, resume_command
from evaldesk.cli.eval.progress import shown_progress
from evaldesk.cli.eval.report import show_result
from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import (
    accept_option,
    accept_run,
    ask_trust,
    json_option,
    n_workers,
    stored_runs,
    trust_option,
    workspace_option,
)
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.provenance import run_digest
from evaldesk.desk.trust import Trust
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model.conclusion import counted
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.settings import Settings
from evaldesk.wording.writer import confirm, show, show_json

RunCall = Callable[[Desk, RunSummary], Awaitable[int]]


@click.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@workspace_option
def stop(name: str, yes: bool, is_json: bool, workspace: str | None) -> None:
    """Stop the run NAME in any process; running trials finish and count.

    \b
    evaldesk run stop 12
    evaldesk run stop my-run --yes
    """

    async def work(desk: Desk, run: RunSummary) -> int:
        _check_live(run)
        await desk.runs.stop(run.id)
        return run.id

    settings = open_home(workspace)
    if not yes and sys.stdin.isatty():
        with stored_runs(workspace) as store:
            run = store.find_by_name(name)
        _check_live(run)
        confirm(f"Stop run {run.id} after {run.n_done:,} of {run.n_trials:,} trials?", abort=True)
    run_id = _with_desk(settings, name, work)
    if is_json:
        from evaldesk.pages.door.runs import item_of

        with stored_runs(workspace) as store:
            show_json(item_of(store, store.find_by_name(str(run_id))), indent=2)
        return
    show(f"Run {run_id} is being stopped. `evaldesk run resume {run_id}` continues it.")


@click.command()
@click.argument("name")
@click.option("--background", "-b", is_flag=True, help="Return at once; the run continues.")
@accept_option
@trust_option
@workspace_option
def resume(name: str, background: bool, digest: str, is_trusted: bool, workspace: str | None) -> None:
    """Play the remaining trials of the run NAME with the same settings.

    A run that somebody else wrote into a shared database is shown first, where this workspace has not got all of it.

    \b
    evaldesk run resume 12
    evaldesk run resume my-run --background
    """
    settings = open_home(workspace)
    if background:
        _in_background(settings, name, digest, is_trusted=is_trusted)
        return

    async def begin(desk: Desk, run: RunSummary) -> int:
        _check_todo(run)
        await accept_run(desk, run, digest)
        await desk.runs.resume(run.id)
        return run.id

    sys.exit(_follow(settings, name, begin, is_trusted=is_trusted))


@click.command()
@click.argument("name")
@accept_option
@trust_option
@workspace_option
def retry(name: str, digest: str, is_trusted: bool, workspace: str | None) -> None:
    """Retry the errored trials of the run NAME.

    \b
    evaldesk run retry 12
    """

    async def begin(desk: Desk, run: RunSummary) -> int:
        if not run.n_to_retry:
            raise ConflictError(f"run {run.id} has no errored trial")
        await accept_run(desk, run, digest)
        await desk.runs.retry(run.id)
        return run.id

    sys.exit(_follow(open_home(workspace), name, begin, is_trusted=is_trusted))


@click.command()
@click.argument("name")
@click.option(
    "--config-file-path", required=True, metavar="FILE", help="The criteria, in the format of test_config.json."
)
@click.option(
    "--expectations",
    type=click.Choice(["run", "set"]),
    default="run",
    show_default=True,
    help="By the expectations as in the run, or as the eval set is now.",
)
@trust_option
@workspace_option
def rescore(name: str, config_file_path: str, expectations: str, is_trusted: bool, workspace: str | None) -> None:
    """Re-score the stored trials of the run NAME with other criteria, as a new run; no agent is called.

    \b
    evaldesk run rescore 12 --config-file-path test_config.json
    evaldesk run rescore 12 --config-file-path test_config.json --expectations set
    """
    from evaldesk.desk.criteria.criteria import given_criteria
    from evaldesk.desk.runs.set_changes import changes_on_page

    criteria = given_criteria(config_file_path)

    async def begin(desk: Desk, run: RunSummary) -> int:
        is_of_set = expectations == "set"
        same = "" if is_of_set else await desk.runs.same_criteria(run.id, criteria)
        if same:
            show(same, err=True)
        changes = await asyncio.to_thread(changes_on_page, desk.evalsets, desk.stored_runs, run)
        if changes is not None:
            which = "as the set is now" if is_of_set else "as in the run; --expectations set takes those of now"
            show(f"Expectations: {which}. {changes.sentence}", err=True)
        return await desk.runs.rescore(run.id, criteria, desk.evalsets if is_of_set else None)

    sys.exit(_follow(open_home(workspace), name, begin, is_trusted=is_trusted))


@click.command(name="rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@workspace_option
def remove(names: tuple[str, ...], yes: bool, workspace: str | None) -> None:
    """Move runs with all their trials to the trash.

    `evaldesk trash restore run-12` brings run 12 back within 30 days; `evaldesk trash empty` removes it for good.

    \b
    evaldesk run rm 12 13 --yes
    """
    settings = open_home(workspace)
    with stored_runs(workspace) as store:
        runs = {run.id: run for run in map(store.find_by_name, names)}
    n = sum(run.n_done for run in runs.values())
    numbers = ", ".join(map(str, runs))
    trials = counted(n, "trial")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"rm moves {trials} to the trash; without a terminal add --yes")
        confirm(f"Move run {numbers} with {trials} to the trash?", abort=True)

    async def work(desk: Desk, run: RunSummary) -> int:
        await desk.runs.delete(run.id)
        return run.id

    for run_id in runs:
        _with_desk(settings, str(run_id), work)
        show(f"Run {run_id} is in the trash; evaldesk trash restore run-{run_id} brings it back.")


def _check_live(run: RunSummary) -> None:
    if run.status not in LIVE:
        raise ConflictError(f"run {run.id} is {run.status} already")


def _in_background(settings: Settings, name: str, digest: str, *, is_trusted: bool) -> None:
    from evaldesk.desk.runs.handover import hand_over

    offered: list[RunSummary] = []

    async def offer(desk: Desk, run: RunSummary) -> int:
        _check_todo(run)
        await accept_run(desk, run, digest)
        await desk.runs.offer(run.id)
        offered.append(run)
        return run.id

    trust = ask_trust(settings, is_trusted=is_trusted, needs_runs_only=True)
    run_id = _with_desk(settings, name, offer, trust)
    hand_over(settings, run_id, run_digest(offered[0].config))
    show(f"Run {run_id} continues in the background. `evaldesk run info {run_id}` shows its progress.")


def _check_todo(run: RunSummary) -> None:
    if not run.n_todo and run.status not in LIVE:
        raise ConflictError(f"run {run.id} has no trial left to play; `evaldesk run retry {run.id}` for errors")


def _with_desk(settings: Settings, name: str, work: RunCall, trust: Trust | None = None) -> int:
    """Open the desk for one call on a run; gives the id."""

    async def carry_out() -> int:
        desk = Desk.open(settings, trust)
        try:
            return await work(desk, await asyncio.to_thread(desk.stored_runs.find_by_name, name))
        finally:
            await desk.close()

    return asyncio.run(carry_out())


def _follow(settings: Settings, name: str, begin: RunCall, *, is_trusted: bool) -> int:
    """Begin with a run and follow it to its end, as `evaldesk eval` does; gives the exit code."""

    with stored_runs(str(settings.workspace)) as runs:
        run = runs.find_by_name(name)
    settings = replace(settings, n_workers=n_workers(run.config.concurrency))
    trust = ask_trust(settings, is_trusted=is_trusted, needs_runs_only=True)
    return asyncio.run(follow_run(Desk.open(settings, trust), lambda desk: begin(desk, run)))


async def follow_run(desk: Desk, begin: Callable[[Desk], Awaitable[int]]) -> int:
    """`begin` starts a run or takes one up, and gives the id to follow; the conclusion of the run is the exit code."""
    desk.poll_requests()
    try:
        with shown_progress(is_quiet=False) as show_moment:
            interruption = Interruption(desk.runs, lambda line: show(line, err=True))
            with on_interrupt(interruption):
                run_id = interruption.run_id = await begin(desk)
                async for _ in desk.runs.watch(run_id):
                    waits = desk.runs.trouble(run_id) or desk.runs.pause(run_id)
                    show_moment(await desk.runs.summary(run_id), waits)
        summary = await desk.runs.summary(run_id)
        conclusion = desk.stored_runs.conclusion(summary)
        show_result(desk.stored_runs, summary)
        show_conclusion(conclusion, has_gates=not summary.config.gates.asks_nothing)
        if summary.status not in LIVE:
            await asyncio.to_thread(write_files, desk, summary, conclusion)
        if summary.status == "stopped":
            show(f"Stopped. Continue with: {resume_command(run_id, desk.settings.workspace)}", err=True)
        return conclusion.exit_code
    finally:
        await desk.close()
