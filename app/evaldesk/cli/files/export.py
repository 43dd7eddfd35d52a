"""`evaldesk export`, `report` and `convert`: an eval set or a run of the workspace, or a file, as another file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.cli.files.exchange_files import (
    ProgressLine,
    announced,
    map_option,
    open_home,
    show_masked,
    visible,
    write_bytes,
)
from evaldesk.cli.runs.shared import stored_runs, workspace_option
from evaldesk.errors import UsageError
from evaldesk.wording.writer import show

if TYPE_CHECKING:
    from evaldesk.desk.runs.stored_runs import StoredRuns

DEFAULT_EVALSET, DEFAULT_RUN = "adk", "adk-results"


@click.command()
@click.argument("what", metavar="EVALSET|RUN")
@click.option("--format", "format_name", metavar="FORMAT", help="adk for an eval set, adk-results for a run.")
@click.option("-o", "--output", metavar="FILE", help="Output file; default: the stream.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@workspace_option
def export(what: str, format_name: str | None, output: str | None, force: bool, workspace: str | None) -> None:
    """Export an eval set by its name, or a run by its number.

    Formats of a run: adk-results, osmosis-results, openhands, atif, otel, csv, and criteria for its
    criteria alone.

    \b
    evaldesk export hello_world --format osmosis-jsonl -o hello.jsonl
    evaldesk export 12 --format csv -o run.csv
    evaldesk export 12 --format criteria -o test_config.json
    """
    from evaldesk.desk.evalsets.exporting import export_evalset

    if what.isdecimal():
        with stored_runs(workspace) as runs:
            _export_run(runs, int(what), format_name or DEFAULT_RUN, output, is_forced=force)
        return
    evalset = export_evalset(open_home(workspace), what, format_name or DEFAULT_EVALSET)
    show_masked(evalset.words)
    write_bytes(evalset.data, output, ending=evalset.ending, is_forced=force)


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
    with stored_runs(workspace) as runs:
        _export_run(runs, runs.find_by_name(name).id, format_name, output, is_forced=force)


def _export_run(runs: StoredRuns, run_id: int, format_name: str, output: str | None, *, is_forced: bool) -> None:
    from evaldesk.desk.evalsets.exporting import stream_run

    line = ProgressLine(is_shown=output not in (None, "-"))
    export = stream_run(runs, run_id, format_name, watch=partial(line.show, "Exporting", "cases"))
    try:
        write_bytes(announced(export, line.clear), output, ending=export.file_name, is_forced=is_forced)
    finally:
        line.clear()


@click.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT")
@click.option("--from", "from_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--to", "to_name", metavar="FORMAT", help="Format of OUT; default: by its file ending.")
@map_option
@click.option("--force", is_flag=True, help="Replace an existing OUT.")
def convert(
    source: Path, target: str, from_name: str | None, to_name: str | None, columns: dict[str, str] | None, force: bool
) -> None:
    """Convert the eval set or the run of IN to OUT; `-` is the stream.

    A value that the new format does not support is an error, or is listed as left out. Secrets of the environment
    are masked, and listed.

    \b
    evaldesk convert questions.csv questions.evalset.json
    evaldesk convert session.json - --to openai-messages
    """
    from evaldesk.desk.imports.files import convert_file

    if columns is not None and from_name:
        raise UsageError("--map reads rows of any data set; leave --from out")
    conversion = convert_file(source, target, from_name, to_name, columns)
    for sentence in conversion.left_out:
        show(f"evaldesk: left out: {visible(sentence.removeprefix('Left out: '))}", err=True)
    show_masked(conversion.masking_note)
    write_bytes(conversion.data, target, ending=conversion.ending, is_forced=force)


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
    if is_compared and not (before and after):
        raise UsageError(f"{name}: name two runs, such as 11..12")
    with stored_runs(workspace) as runs:
        if is_compared:
            html_report = comparison_report(runs, runs.find_by_name(before).id, runs.find_by_name(after).id)
        else:
            html_report = run_report(runs, runs.find_by_name(name).id)
    file = output or html_report.file_name
    show_masked(html_report.masked)
    write_bytes(html_report.data, file, ending=html_report.file_name, is_forced=force)
    if file != "-":
        show(file)
