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
@click.option("--accept", "digest", default="", help="The digest of the run that may be played.")
@workspace_option
def drive(run_id: int, digest: str, workspace: str | None) -> None:
    """Play the run RUN_ID to its end.

    \b
    evaldesk run drive 12
    """
    asyncio.run(_drive(open_home(workspace), run_id, digest))


async def _drive(settings: Settings, run_id: int, digest: str) -> None:
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.runs.stored_runs import open_stored_runs

    with open_stored_runs(settings) as runs:
        concurrency = runs.summary(run_id).config.concurrency
    desk = Desk.open(replace(settings, n_workers=n_workers(concurrency)))
    desk.poll_requests()
    try:
        if digest:
            desk.runs.take_word(run_id, digest)
        with suppress(ConflictError):  # another process plays it: no error
            await desk.runs.resume(run_id)
            async for _ in desk.runs.watch(run_id):
                pass
    finally:
        await desk.close()
