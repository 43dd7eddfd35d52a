"""`evaldesk run`: the runs of a workspace from the shell."""

from __future__ import annotations

from collections.abc import Mapping

import click

from evaldesk.cli.lazy import LazyGroup

COMMANDS: Mapping[str, str] = {
    "submit": "evaldesk.cli.runs.submit:submit",
    "list": "evaldesk.cli.runs.list:list_runs",
    "info": "evaldesk.cli.runs.info:info",
    "logs": "evaldesk.cli.runs.logs:logs",
    "stop": "evaldesk.cli.runs.change:stop",
    "resume": "evaldesk.cli.runs.change:resume",
    "retry": "evaldesk.cli.runs.change:retry",
    "rescore": "evaldesk.cli.runs.change:rescore",
    "export": "evaldesk.cli.files.export:export_run_command",
    "rm": "evaldesk.cli.runs.change:remove",
    "drive": "evaldesk.cli.runs.drive:drive",
}


WORDS: Mapping[str, str] = {
    "submit": "Submit the run of FILE, in Osmosis' TOML; all settings are checked before the start.",
    "list": "List runs, newest first.",
    "info": "Show the details of the run NAME.",
    "logs": "Show the output of the agent and the errors in the trials of the run NAME.",
    "stop": "Stop the run NAME in any process; running trials finish and count.",
    "resume": "Play the remaining trials of the run NAME with the same settings.",
    "retry": "Retry the errored trials of the run NAME.",
    "rescore": "Re-score the stored trials of the run NAME with other criteria, as a new run; no agent is called.",
    "export": "Write the finished trials of the run NAME as a file: csv, adk-results, osmosis-results, openhands.",
    "rm": "Move runs with all their trials to the trash.",
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
