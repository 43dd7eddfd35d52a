"""`evaldesk compare`: stored runs and result files against one of them, without an agent."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import FiniteRange, json_option, workspace_option
from evaldesk.desk.runs.run_sources import SourceComparison, compare_sources, read_sources
from evaldesk.errors import DiskError, UsageError
from evaldesk.pages.compared_sources import comparison_lines, comparison_markdown, comparison_object
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json

EXIT_CODES = {"held": 0, "failed": 1, "undecided": 3}


@click.command()
@click.argument("names", metavar="RUN|FILE RUN|FILE ...", nargs=-1, required=True)
@click.option("--baseline", metavar="RUN|FILE", help="The one to compare with; default: the first.")
@click.option(
    "--max-drop",
    type=FiniteRange(0, 1),
    metavar="R",
    help="Exit with 1 where a pass rate is lower by more than R, 0 to 1, over the shared cases; with 3 without any.",
)
@json_option
@click.option("--summary", metavar="FILE", help="Markdown for a pull request; appended to $GITHUB_STEP_SUMMARY.")
@workspace_option
def compare(
    names: tuple[str, ...],
    baseline: str | None,
    max_drop: float | None,
    is_json: bool,
    summary: str | None,
    workspace: str | None,
) -> None:
    """Compare 2 to 20 runs, by number or name, or result files of `evaldesk eval -o FILE.json`. No agent is needed.

    \b
    evaldesk compare 12 14 15
    evaldesk compare main.json pr.json --baseline main.json --max-drop 0.05
    """
    every = [*names] if baseline is None or baseline in names else [baseline, *names]
    place = 0 if baseline is None else every.index(baseline)
    comparison = compare_sources(read_sources(every, lambda: open_home(workspace), place), place, max_drop)
    if summary:
        _write_summary(summary, comparison)
    if is_json:
        show_json(comparison_object(comparison), indent=2)
    else:
        for line in comparison_lines(comparison):
            show(in_one_line(line))
    if comparison.answer is not None:
        sys.exit(EXIT_CODES[comparison.answer])


def _write_summary(name: str, comparison: SourceComparison) -> None:
    """Markdown to the file; to that of a GitHub workflow it is appended. Raises UsageError."""
    from evaldesk.durable_files import append_file, write_output

    data = comparison_markdown(comparison).encode()
    write = append_file if name == os.environ.get("GITHUB_STEP_SUMMARY") else write_output
    try:
        write(Path(name), data)
    except DiskError as error:
        raise UsageError(f"--summary {name}: {error.strerror}; name another file") from error
