"""`evaldesk run export`."""

from __future__ import annotations

import click

from evaldesk.cli.exchange_files import write_bytes
from evaldesk.cli.runs_of import named_run, opened_store, workspace_option


@click.command(name="export")
@click.argument("name")
@click.option("--format", "format_name", default="csv", show_default=True, metavar="FORMAT", help="What to write.")
@click.option("-o", "--output", metavar="FILE", help="Where to; the stream unless given.")
@click.option("--force", is_flag=True, help="Replace FILE when it is there.")
@workspace_option
def export_run_command(name: str, format_name: str, output: str | None, force: bool, workspace: str | None) -> None:
    """Write the finished trials of the run NAME as a file: csv, adk-results, osmosis-results, openhands.

    Other formats are atif, otel, and criteria for the criteria of the run alone.

    \b
    evaldesk run export 12 -o run.csv
    evaldesk run export 12 --format osmosis-results -o results.json
    """
    from evaldesk.desk.exporting import export_run

    with opened_store(workspace) as store:
        data = export_run(store, named_run(store, name).id, format_name).data
    write_bytes(data, output, is_forced=force)
