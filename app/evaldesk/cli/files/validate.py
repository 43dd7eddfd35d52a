"""`evaldesk validate`: the format of a file, its contents, and its faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from evaldesk.cli.files.exchange_files import report, show_words, visible
from evaldesk.errors import EvaldeskError, FormatError, UsageError
from evaldesk.wording.writer import show, show_json

EXIT_VALID, EXIT_REPEATS, EXIT_INVALID = 0, 1, 2


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--from", "format_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--json", "is_json", is_flag=True, help="Print a list with an object for each file.")
def validate(files: tuple[Path, ...], format_name: str | None, is_json: bool) -> None:
    """Show format, cases, trials, unused keys and errors of each FILE.

    A criteria file is held against the metrics that there are, evaldesk.toml and a run file of `run submit` against
    their keys.

    Exit code 0: all can be read; 1: all can be read, but several cases of an eval set have the same id, which
    `import` refuses; 2: not all can be read.

    \b
    evaldesk validate evalsets/*.evalset.json
    evaldesk validate test_config.json evaldesk.toml
    evaldesk validate airline.json --json
    """
    facts_of_files = [_examine(path, format_name, is_json=is_json) for path in files]
    if is_json:
        show_json(facts_of_files, indent=2)
    sys.exit(max((_exit_code(each) for each in facts_of_files), default=EXIT_VALID))


def _exit_code(facts: dict[str, Any]) -> int:
    if not facts["is_valid"]:
        return EXIT_INVALID
    return EXIT_REPEATS if facts.get("repeats") else EXIT_VALID


def _examine(path: Path, format_name: str | None, *, is_json: bool) -> dict[str, Any]:
    from evaldesk.desk.imports.files import examine_file

    try:
        examination = examine_file(path, format_name)
    except EvaldeskError as error:
        if not is_json:
            report(error)
        names = ("line", "column", "path") if isinstance(error, FormatError) else ()
        place = {name: getattr(error, name) for name in names}
        return {"file": str(path), "is_valid": False, "error": str(error)} | place
    if not is_json:
        show(f"{visible(str(path))}: {examination.title}")
        show_words(examination.understood, examination.kept, examination.refused)
        if examination.repeats:
            report(UsageError(f"{path}: several cases have the same id: {examination.repeats}; give each its own"))
    facts = {"file": str(path), "is_valid": True, "format": examination.format}
    if examination.n_cases is None:
        return {**facts, "understood": examination.understood}
    return {
        **facts,
        "n_cases": examination.n_cases,
        "runs": [
            {"name": name, "n_cases": n_cases, "n_trials": n_trials} for name, n_cases, n_trials in examination.runs
        ],
        "understood": examination.understood,
        "kept": examination.kept,
        "refused": examination.refused,
        "repeats": examination.repeats,
    }
