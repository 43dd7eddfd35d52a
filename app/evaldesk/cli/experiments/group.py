"""`evaldesk experiment`: the experiments of a workspace from the shell."""

from __future__ import annotations

from collections.abc import Mapping

import click

from evaldesk.cli.lazy import LazyCommand, LazyGroup

COMMANDS: Mapping[str, LazyCommand] = {
    "list": LazyCommand("evaldesk.cli.experiments.show:list_experiments", "List experiments, newest first."),
    "show": LazyCommand("evaldesk.cli.experiments.show:show_experiment", "Show the variants of experiment ID."),
    "report": LazyCommand(
        "evaldesk.cli.experiments.show:report", "Write experiment ID as one Markdown file, with its doubts."
    ),
    "export": LazyCommand(
        "evaldesk.cli.experiments.exchange:export", "Write experiment ID with all of its trials as one JSON file."
    ),
    "import": LazyCommand("evaldesk.cli.experiments.exchange:import_", "Store the experiment of an exported FILE."),
    "stop": LazyCommand(
        "evaldesk.cli.experiments.change:stop", "Stop all variants of experiment ID; running trials finish and count."
    ),
    "resume": LazyCommand(
        "evaldesk.cli.experiments.change:resume", "Play the remaining trials of experiment ID in their order."
    ),
    "confirm": LazyCommand(
        "evaldesk.cli.experiments.change:confirm", "Play the leader of experiment ID against its baseline once more."
    ),
    "drive": LazyCommand("evaldesk.cli.experiments.drive:drive", ""),
    "add": LazyCommand("evaldesk.cli.experiments.change:add", "Add variants to experiment ID, and play them."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def experiment() -> None:
    """List, show, stop, resume and extend experiments, whose variants are runs.

    \b
    evaldesk experiment list
    evaldesk experiment show 7
    evaldesk experiment show 7 --csv
    """
