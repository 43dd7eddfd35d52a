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


WORDS: Mapping[str, str] = {
    "submit": "Submit the run that FILE describes, in Osmosis' TOML; all of it is checked before anything runs.",
    "list": "List runs, newest first.",
    "info": "Tell all about the run NAME.",
    "logs": "Show what the agent printed in the trials of the run NAME, and what broke.",
    "stop": "Stop the run NAME, whichever process plays it; trials in flight finish and count.",
    "resume": "Play what is left of the run NAME, with the configuration it was started with.",
    "retry": "Play the errored trials of the run NAME again, as their next attempt.",
    "rescore": "Score the stored trials of the run NAME by other criteria, as a new run; no agent is called.",
    "export": "Write the finished trials of the run NAME as a file: csv, adk-results, osmosis-results, openhands.",
    "rm": "Delete runs with all their trials.",
    "drive": "",
}


@click.group(cls=LazyGroup, commands_by_name=COMMANDS, words=WORDS)
def run() -> None:
    """Submit, watch, stop and resume runs; NAME is a number, or how the name of a run begins.

    \b
    evaldesk run submit configs/eval/my-run.toml --yes
    evaldesk run list
    evaldesk run info 12
    """
