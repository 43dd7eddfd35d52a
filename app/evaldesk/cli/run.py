"""`evaldesk run`: the runs of a workspace from the shell."""

from __future__ import annotations

from collections.abc import Mapping

import click

from evaldesk.cli.lazy import LazyGroup

COMMANDS: Mapping[str, str] = {
    "submit": "evaldesk.cli.run_submit:submit",
    "list": "evaldesk.cli.run_list:list_runs",
    "info": "evaldesk.cli.run_info:info",
    "logs": "evaldesk.cli.run_logs:logs",
    "stop": "evaldesk.cli.run_change:stop",
    "resume": "evaldesk.cli.run_change:resume",
    "retry": "evaldesk.cli.run_change:retry",
    "rescore": "evaldesk.cli.run_change:rescore",
    "export": "evaldesk.cli.run_export:export_run_command",
    "rm": "evaldesk.cli.run_change:remove",
    "drive": "evaldesk.cli.run_drive:drive",
}


@click.group(cls=LazyGroup, commands_by_name=COMMANDS)
def run() -> None:
    """Submit, watch, stop and resume runs; NAME is a number, or the note of a run.

    \b
    evaldesk run submit configs/eval/my-run.toml --yes
    evaldesk run list
    evaldesk run info 12
    """
