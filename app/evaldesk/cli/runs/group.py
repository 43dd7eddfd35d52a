"""`evaldesk run`: the runs of a workspace from the shell."""

from __future__ import annotations

from collections.abc import Mapping

import click

from evaldesk.cli.lazy import LazyCommand, LazyGroup

COMMANDS: Mapping[str, LazyCommand] = {
    "submit": LazyCommand(
        "evaldesk.cli.runs.submit:submit",
        "Submit the run of FILE, in Osmosis' TOML, or its experiment; all settings are checked before the start.",
    ),
    "play": LazyCommand(
        "evaldesk.cli.runs.submit:play",
        "Play the run of FILE, in Osmosis' TOML, to its end; `evaldesk eval run FILE` is the same.",
    ),
    "list": LazyCommand("evaldesk.cli.runs.show:list_runs", "List runs, newest first."),
    "info": LazyCommand("evaldesk.cli.runs.show:info", "Show the details of the run NAME."),
    "start": LazyCommand(
        "evaldesk.cli.door.playing:start",
        "Start a run of AGENT and SET, by the criteria of SET, in the background.",
    ),
    "wait": LazyCommand("evaldesk.cli.door.playing:wait", "Wait until the run NAME ends, and show it as it is then."),
    "changes": LazyCommand(
        "evaldesk.cli.door.trials:changes",
        "Show the changes of eval set, criteria and gates between the runs BEFORE and AFTER, with their authors.",
    ),
    "trials": LazyCommand(
        "evaldesk.cli.door.trials:trials",
        "List the finished trials of the run NAME with their first divergences.",
    ),
    "trial": LazyCommand(
        "evaldesk.cli.door.trials:trial",
        "Print TRIAL of CASE in the run NAME as text: its verdict, its first divergence, then its turns.",
    ),
    "logs": LazyCommand(
        "evaldesk.cli.runs.show:logs", "Show the output of the agent and the errors in the trials of the run NAME."
    ),
    "stop": LazyCommand(
        "evaldesk.cli.runs.change:stop", "Stop the run NAME in any process; running trials finish and count."
    ),
    "resume": LazyCommand(
        "evaldesk.cli.runs.change:resume", "Play the remaining trials of the run NAME with the same settings."
    ),
    "retry": LazyCommand("evaldesk.cli.runs.change:retry", "Retry the errored trials of the run NAME."),
    "rescore": LazyCommand(
        "evaldesk.cli.runs.change:rescore",
        "Re-score the stored trials of the run NAME with other criteria, as a new run; no agent is called.",
    ),
    "export": LazyCommand(
        "evaldesk.cli.files.export:export_run_command",
        "Write the finished trials of the run NAME as a file: csv, adk-results, osmosis-results, openhands.",
    ),
    "merge": LazyCommand(
        "evaldesk.cli.runs.merge:merge", "Merge the result files of all shards into one result, and answer its gates."
    ),
    "rm": LazyCommand("evaldesk.cli.runs.change:remove", "Move runs with all their trials to the trash."),
    "drive": LazyCommand("evaldesk.cli.runs.drive:drive", ""),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def run() -> None:
    """Submit, watch, stop and resume runs; NAME is a number, or how the name of a run begins.

    \b
    evaldesk run submit configs/eval/my-run.toml --yes
    evaldesk run list
    evaldesk run info 12
    """
