"""`evaldesk mcp`: the door for a coding agent on standard input and output."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import workspace_option
from evaldesk.errors import UsageError
from evaldesk.process_setup import gc_paused
from evaldesk.settings import CLIENT_GROUPS

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.pages.door.tools import Caller
    from evaldesk.settings import Settings


@click.command()
@click.option("--allow", default="", metavar="run,propose", help="Also tools that start runs, and that propose.")
@click.option("--budget", default="", metavar="5usd/day", help="The most that their runs may cost in a day (UTC).")
@workspace_option
def mcp(allow: str, budget: str, workspace: str | None) -> None:
    """Serve a coding agent on standard input and output by the protocol MCP. Needs the extra evaldesk[mcp].

    Reading is always allowed. No tool labels, accepts or deletes, and none changes criteria, thresholds, gates,
    baselines or trust.

    \b
    evaldesk mcp
    evaldesk mcp --allow propose
    evaldesk mcp --allow run,propose --budget 5usd/day
    """
    from evaldesk.model.client_budget import Budget
    from evaldesk.pages.door.tools import Caller
    from evaldesk.web.mcp_server import check_installed

    groups = frozenset(filter(None, (part.strip() for part in allow.split(","))))
    unknown_groups = sorted(groups - set(CLIENT_GROUPS))
    if unknown_groups:
        raise UsageError(f"--allow {allow}: {unknown_groups[0]} is none of {', '.join(CLIENT_GROUPS)}")
    if "run" in groups and not budget:
        raise UsageError("--allow run: name the most that runs may cost in a day, such as --budget 5usd/day")
    caller = Caller(allowed=groups, budget=Budget.read(budget) if budget else None)
    settings = open_home(workspace)
    check_installed()
    asyncio.run(_serve(settings, caller))


async def _serve(settings: Settings, caller: Caller) -> None:
    """Serve with a desk that the first call opens, on its database beside an open desk; it plays nothing here."""
    from evaldesk.web.mcp_server import serve_streams

    opening = asyncio.Lock()
    desks: list[Desk] = []

    def open_now() -> Desk:
        with gc_paused():
            from evaldesk.desk.desk import Desk  # not before the first answer, which names the tools

            return Desk.open(replace(settings, roots=(*settings.roots, settings.samples_folder)))

    async def open_desk() -> Desk:
        async with opening:
            if not desks:
                desks.append(await asyncio.to_thread(open_now))
        return desks[0]

    try:
        await serve_streams(open_desk, caller)
    finally:
        for desk in desks:
            await desk.close()
