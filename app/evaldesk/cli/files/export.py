"""`evaldesk export`: an eval set or a run of the workspace as a file."""

from __future__ import annotations

import click

from evaldesk.cli.files.exchange_files import open_home, show_masked, write_bytes
from evaldesk.cli.runs.shared import stored_runs, workspace_option

DEFAULT_EVALSET, DEFAULT_RUN = "adk", "adk-results"


@click.command()
@click.argument("what", metavar="EVALSET|RUN")
@click.option("--format", "format_name", metavar="FORMAT", help="adk for an eval set, adk-results for a run.")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: the stream.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@click.option("--workspace", help="The folder with .evaldesk; default: the current folder.")
def export(what: str, format_name: str | None, output: str | None, force: bool, workspace: str | None) -> None:
    """Export an eval set by its name, or a run by its number.

    Formats of a run: adk-results, osmosis-results, openhands, atif, otel, csv, and criteria for its
    criteria alone.

    \b
    evaldesk export hello_world --format osmosis-jsonl -o hello.jsonl
    evaldesk export 12 --format csv -o run.csv
    evaldesk export 12 --format criteria -o test_config.json
    """
    from evaldesk.desk.evalsets.exporting import export_evalset, export_run

    if what.isdecimal():
        with stored_runs(workspace) as runs:
            found = export_run(runs, int(what), format_name or DEFAULT_RUN)
            data, words = found.data, found.masked
    else:
        evalset = export_evalset(open_home(workspace), what, format_name or DEFAULT_EVALSET)
        data, words = evalset.data, evalset.words
    write_bytes(data, output, is_forced=force)
    show_masked(words)


@click.command(name="export")
@click.argument("name")
@click.option("--format", "format_name", default="csv", show_default=True, metavar="FORMAT", help="What to write.")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: the stream.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@workspace_option
def export_run_command(name: str, format_name: str, output: str | None, force: bool, workspace: str | None) -> None:
    """Write the finished trials of the run NAME as a file: csv, adk-results, osmosis-results, openhands.

    Other formats are atif, otel, and criteria for the criteria of the run alone.

    \b
    evaldesk run export 12 -o run.csv
    evaldesk run export 12 --format osmosis-results -o results.json
    """
    from evaldesk.desk.evalsets.exporting import export_run

    with stored_runs(workspace) as runs:
        found = export_run(runs, runs.named(name).id, format_name)
    write_bytes(found.data, output, is_forced=force)
    show_masked(found.masked)
