"""`evaldesk experiment drive`: the process that plays one submitted experiment where no desk is open.

No person types it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import n_workers, workspace_option
from evaldesk.errors import ConflictError
from evaldesk.settings import Settings


@click.command(hidden=True)
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@click.option("--accept", "digests", multiple=True, metavar="RUN:DIGEST", help="A run that may be played as it is.")
@workspace_option
def drive(experiment_id: int, digests: tuple[str, ...], workspace: str | None) -> None:
    """Play the runs of experiment ID to their end.

    \b
    evaldesk experiment drive 7
    """
    asyncio.run(_drive(open_home(workspace), experiment_id, digests))


async def _drive(settings: Settings, experiment_id: int, digests: Sequence[str]) -> None:
    from evaldesk.desk.desk import Desk

    desk = Desk.open(settings)
    try:
        concurrency = (await desk.experiments.get(experiment_id)).plan.concurrency
    finally:
        await desk.close()
    desk = Desk.open(replace(settings, n_workers=n_workers(concurrency)))
    desk.poll_requests()
    try:
        for each in digests:
            number, _, digest = each.partition(":")
            desk.runs.take_word(int(number), digest)
        with suppress(ConflictError):  # another process plays it: no error
            await desk.experiments.resume(experiment_id)
            for run_id in (await desk.experiments.get(experiment_id)).run_ids:
                async for _ in desk.runs.watch(run_id):
                    pass
    finally:
        await desk.close()
