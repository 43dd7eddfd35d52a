"""`evaldesk experiment list, show, report`."""

from __future__ import annotations

import click

from evaldesk.cli.files.exchange_files import write_masked
from evaldesk.cli.runs.shared import Command, json_option, opened_desk, workspace_option
from evaldesk.errors import UsageError
from evaldesk.pages.experiment_files import (
    experiment_csv,
    experiment_lines,
    experiment_markdown,
    experiment_object,
    listed_object,
    listed_words,
)
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_document, show_json

MOST_LISTED = 50


@click.command()
@json_option
@workspace_option
def list_experiments(is_json: bool, workspace: str | None) -> None:
    """List experiments, newest first.

    \b
    evaldesk experiment list
    """
    with opened_desk(workspace) as desk:
        experiments = desk.experiments.list(limit=MOST_LISTED)
    if is_json:
        show_json([listed_object(each) for each in experiments], indent=2)
        return
    for each in experiments:
        show(in_one_line(listed_words(each)))
    if not experiments:
        show("No experiment yet; begin one: evaldesk eval AGENT EVALSET --vary model=a,b", err=True)


def baseline_option(command: Command) -> Command:
    """`--baseline-variant` of results that are shown."""
    words = "The variant that the others are compared with, in place of that of the experiment."
    return click.option("--baseline-variant", "baseline", metavar="NAME", help=words)(command)


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@baseline_option
@json_option
@click.option("--csv", "is_csv", is_flag=True, help="Print a line of CSV for each variant.")
@workspace_option
def show_experiment(
    experiment_id: int, baseline: str | None, is_json: bool, is_csv: bool, workspace: str | None
) -> None:
    """Show the variants of experiment ID: pass rates, differences from the baseline, and which may be the best.

    \b
    evaldesk experiment show 7
    """
    if is_json and is_csv:
        raise UsageError("--json and --csv: leave one out")
    with opened_desk(workspace) as desk:
        experiment = desk.experiments.read(experiment_id, baseline)
    if is_json:
        show_json(experiment_object(experiment), indent=2)
    elif is_csv:
        show_document((line.encode() for line in experiment_csv(experiment)), ".csv")
    else:
        for line in experiment_lines(experiment):
            show(in_one_line(line))


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@baseline_option
@click.option("--output", "-o", metavar="FILE", help="The file; default: standard output.")
@workspace_option
def report(experiment_id: int, baseline: str | None, output: str | None, workspace: str | None) -> None:
    """Write experiment ID as one Markdown file, with its doubts.

    \b
    evaldesk experiment report 7 -o experiment.md
    """
    with opened_desk(workspace) as desk:
        text = experiment_markdown(desk.experiments.read(experiment_id, baseline))
    write_masked(text.encode(), output)
