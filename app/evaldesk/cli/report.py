"""`evaldesk report RUN`: a run, or two compared, as one HTML file for people without the desk."""

from __future__ import annotations

import click

from evaldesk.cli.files.exchange_files import show_masked, write_bytes
from evaldesk.cli.runs.shared import stored_runs, workspace_option


@click.command()
@click.argument("name", metavar="RUN|A..B")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: named after the run; `-` is the stream.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@workspace_option
def report(name: str, output: str | None, force: bool, workspace: str | None) -> None:
    """Write RUN, or run B against run A, as one HTML file that opens without a network.

    The file has the page of the run and up to 2 MB of transcripts, first of the trials that did not pass.
    Secrets are masked and listed.

    \b
    evaldesk report 12
    evaldesk report 12 -o report.html
    evaldesk report 11..12
    """
    from evaldesk.web.report import comparison_report, run_report

    before, is_compared, after = name.partition("..")
    with stored_runs(workspace) as runs:
        if is_compared:
            found = comparison_report(runs, runs.named(before).id, runs.named(after).id)
        else:
            found = run_report(runs, runs.named(name).id)
    file = output or found.file_name
    write_bytes(found.data, file, is_forced=force)
    show_masked(found.masked)
    if file != "-":
        click.echo(file)
