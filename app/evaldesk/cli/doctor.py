"""`evaldesk doctor`: the obstacles to a run."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from evaldesk.cli.runs.shared import ask_trust, python_option, settings_of, trust_option, workspace_option
from evaldesk.wording.writer import show, style

if TYPE_CHECKING:
    from evaldesk.desk.doctor import Finding
    from evaldesk.desk.trust import Trust
    from evaldesk.settings import Settings

EXIT_TROUBLE = 1
MARKS = {"good": ("ok", "green"), "untried": ("-", "white"), "warning": ("look", "yellow"), "bad": ("bad", "red")}


@click.command(name="doctor")
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@click.option("--call", "is_called", is_flag=True, help="Send one small request to each model; has a small cost.")
@click.option(
    "--play", "is_played", is_flag=True, help="Play one turn of each agent; it calls its model and its tools."
)
@click.option(
    "--repair", "is_repaired", is_flag=True, help="Mend what is broken in the workspace; no desk may be open."
)
@click.option(
    "--restore",
    metavar="WHEN",
    help="Put a backup of the database in its place: `latest`, or a name of the line `backups`; no desk may be open.",
)
@click.option("--on", metavar="NAME", help="Play one trial of a sample agent on [executors.NAME] of evaldesk.toml.")
@python_option
@trust_option
@workspace_option
def doctor(
    folders: tuple[str, ...],
    is_called: bool,
    is_played: bool,
    is_repaired: bool,
    restore: str | None,
    on: str | None,
    python: str | None,
    is_trusted: bool,
    workspace: str | None,
) -> None:
    """Check the workspace, the agents, the models and the environment; starts no run.

    Nothing is written without --repair or --restore. A repair removes unfinished files of killed writers and moves
    files that cannot be read into the trash folder; whole cases of an eval set that ends too early are kept as a new
    set. The rows of a damaged database that can be read go into a new one; the damaged file is kept in a folder beside
    it. An open desk makes backups: hourly while the database changes, the last 24 and one of each of the last 7 days.

    Exit code 0: no problem, or all are repaired; 1: a problem.

    \b
    evaldesk doctor
    evaldesk doctor --call
    evaldesk doctor --play --python python3.12
    evaldesk doctor --on cluster
    evaldesk doctor --repair
    evaldesk doctor --restore latest
    """
    from evaldesk.wording.printable import printable

    settings = settings_of(folders, workspace, python)
    trust = ask_trust(settings, is_trusted=is_trusted)
    if is_called or is_played or on:
        trust.check_all()
    if is_repaired or restore:
        trust.check_repair()
    if restore:
        from evaldesk.desk.doctor import restore_backup

        show(printable(restore_backup(settings, trust, restore).sentence))
    looking = _findings(settings, trust, on, is_called=is_called, is_played=is_played, is_repaired=is_repaired)
    findings = asyncio.run(looking)
    width = max(len(finding.about) for finding in findings)
    for finding in findings:
        mark, colour = MARKS[finding.state]
        show(f"{style(mark.ljust(4), fg=colour)}  {finding.about.ljust(width)}  {printable(finding.sentence)}")
    sys.exit(EXIT_TROUBLE if any(finding.state == "bad" for finding in findings) else 0)


async def _findings(
    settings: Settings, trust: Trust, on: str | None, *, is_called: bool, is_played: bool, is_repaired: bool
) -> list[Finding]:
    from evaldesk.desk import doctor as look
    from evaldesk.desk.doctor import ask_agents

    # Before anything else: a repaired eval set or database is looked at as it is then.
    repaired = look.repair_files(settings) if is_repaired else look.look_at_files(settings)
    agents = await ask_agents(settings, trust)
    models = look.models_of(settings, agents)
    return [
        *look.look_at_environment(),
        *look.look_at_workspace(settings),
        *repaired,
        *look.look_at_trust(trust),
        *look.look_at_agents(agents, is_played=is_played),
        *(await look.play_agents(agents, trust, settings) if is_played else ()),
        *(await look.play_on(settings, on) if on else ()),
        *look.look_at_limits(settings, agents),
        *(await look.call_models(models, settings.model_options) if is_called else look.look_at_keys(models)),
    ]
