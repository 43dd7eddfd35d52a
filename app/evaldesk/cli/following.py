"""Follows a run that this process plays to its end: progress, Ctrl-C, the cases, the answer, the exit code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from evaldesk.cli.eval_outcome import exit_code
from evaldesk.cli.eval_report import show_result
from evaldesk.cli.playing import EXIT_INTERRUPTED, Interruption, on_interrupt, resume_command
from evaldesk.cli.progress import shown_progress
from evaldesk.desk.desk import Desk
from evaldesk.desk.run_numbers import run_numbers
from evaldesk.report.gates import Gates, judge_gates
from evaldesk.store import RunSummary


async def follow_run(desk: Desk, run: RunSummary, begin: Callable[[Desk, RunSummary], Awaitable[int]]) -> int:
    """`begin` takes the run up and gives the id of the run to follow; every trial of it must pass for code 0."""
    desk.attend()
    try:
        with shown_progress(is_quiet=False) as show:
            interruption = Interruption(desk.runs, lambda line: click.echo(line, err=True))
            with on_interrupt(interruption):
                run_id = interruption.run_id = await begin(desk, run)
                async for _ in desk.runs.watch(run_id):
                    waits = desk.runs.trouble(run_id) or desk.runs.pause(run_id)
                    show(await desk.runs.summary(run_id), waits)
        summary = await desk.runs.summary(run_id)
        show_result(desk.store, summary)
        if summary.status == "stopped":
            click.echo(f"Stopped. Go on with: {resume_command(run_id, desk.settings.workspace)}", err=True)
            return EXIT_INTERRUPTED
        outcomes = judge_gates(Gates(), run_numbers(desk.store, summary))
        return exit_code(outcomes, is_whole=summary.status == "finished")
    finally:
        await desk.close()
