"""`evaldesk run drive`: the process that plays one submitted run where no desk is open. No person types it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from evaldesk.cli.runs.shared import n_workers, workspace_option
from evaldesk.errors import ConflictError
from evaldesk.settings import Settings, read_settings


@click.command(hidden=True)
@click.argument("run_id", type=int)
@workspace_option
def drive(run_id: int, workspace: str | None) -> None:
    """Play the run RUN_ID to its end.

    \b
    evaldesk run drive 12
    """
    home = Path(workspace).resolve() if workspace else Path.cwd()
    settings = read_settings(home, (home,), environment=os.environ)
    asyncio.run(_drive(replace(settings, n_workers=n_workers(4)), run_id))


async def _drive(settings: Settings, run_id: int) -> None:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings)
    desk.poll_requests()
    try:
        with suppress(ConflictError):  # another process plays it: no error
            await desk.runs.resume(run_id)
            async for _ in desk.runs.watch(run_id):
                pass
    finally:
        await desk.close()
