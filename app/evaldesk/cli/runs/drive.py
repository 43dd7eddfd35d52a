"""`evaldesk run drive`: the process that plays one submitted run where no desk is open. No person types it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import n_workers, workspace_option
from evaldesk.errors import ConflictError
from evaldesk.settings import Settings


@click.command(hidden=True)
@click.argument("run_id", type=int)
@click.option("--trust", "is_trusted", is_flag=True, help="The command that submitted the run had the consent.")
@workspace_option
def drive(run_id: int, is_trusted: bool, workspace: str | None) -> None:
    """Play the run RUN_ID to its end.

    \b
    evaldesk run drive 12
    """
    asyncio.run(_drive(open_home(workspace), run_id, is_trusted=is_trusted))


async def _drive(settings: Settings, run_id: int, *, is_trusted: bool) -> None:
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.runs.stored_runs import open_stored_runs

    with open_stored_runs(settings) as runs:
        concurrency = runs.summary(run_id).config.concurrency
    desk = Desk.open(replace(settings, n_workers=n_workers(concurrency)))
    desk.poll_requests()
    try:
        if is_trusted:
            desk.trust.name((await desk.runs.summary(run_id)).config.agent)
        with suppress(ConflictError):  # another process plays it: no error
            await desk.runs.resume(run_id)
            async for _ in desk.runs.watch(run_id):
                pass
    finally:
        await desk.close()
