"""`evaldesk report RUN`: a run as one HTML file for people without the desk."""

from __future__ import annotations

import click

from evaldesk.cli.files.exchange_files import show_masked, write_bytes
from evaldesk.cli.runs.shared import stored_runs, workspace_option


@click.command()
@click.argument("name", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: run_N_EVALSET.html, `-` is the stream.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@workspace_option
def report(name: str, output: str | None, force: bool, workspace: str | None) -> None:
    """Write RUN, by its number or its name, as one HTML file that opens without a network.

    The file has the page of the run and up to 2 MB of transcripts, first of the trials that did not pass.
    Secrets are masked and listed.

    \b
    evaldesk report 12
    evaldesk report 12 -o report.html
    """
    from evaldesk.web.report import run_report

    with stored_runs(workspace) as runs:
        found = run_report(runs, runs.named(name).id)
    file = output or found.file_name
    write_bytes(found.data, file, is_forced=force)
    show_masked(found.masked)
    if file != "-":
        click.echo(file)
