"""`evaldesk validate`: what a file is, what is understood of it, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from evaldesk.cli.exchange_files import read_path, report, show_words, visible
from evaldesk.errors import EvaldeskError, FormatError

EXIT_VALID, EXIT_INVALID = 0, 2
MAX_CRITERIA = 1024 * 1024
"""Bytes beyond which a file is no criteria file."""


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--from", "format_name", metavar="FORMAT", help="Read as this format, whatever the file shows.")
@click.option("--json", "is_json", is_flag=True, help="Print a list with an object for each file.")
def validate(files: tuple[Path, ...], format_name: str | None, is_json: bool) -> None:
    """Say what each FILE is, how many cases and trials it holds, what is only kept, and what is wrong.

    A criteria file is held against the metrics that there are.

    Exit code 0: all can be read; 2: not all.

    \b
    evaldesk validate evalsets/*.evalset.json
    evaldesk validate test_config.json
    evaldesk validate airline.json --json
    """
    found = [_examined(path, format_name, is_json=is_json) for path in files]
    if is_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    sys.exit(EXIT_VALID if all(each["is_valid"] for each in found) else EXIT_INVALID)


def _examined(path: Path, format_name: str | None, *, is_json: bool) -> dict[str, Any]:
    from evaldesk.formats.files import title_of

    try:
        if format_name is None and _is_criteria(path):
            return _examined_criteria(path, is_json=is_json)
        imported = read_path(path, format_name)
    except EvaldeskError as error:
        if not is_json:
            report(error)
        place = {name: getattr(error, name) for name in ("line", "column", "path")} if _is_placed(error) else {}
        return {"file": str(path), "is_valid": False, "error": str(error)} | place
    if not is_json:
        click.echo(f"{visible(str(path))}: {title_of(imported.format)}")
        show_words(imported)
    return {
        "file": str(path),
        "is_valid": True,
        "format": imported.format,
        "n_cases": len(imported.evalset.cases) if imported.evalset else 0,
        "runs": [{"name": run.name, "n_cases": len(run.cases), "n_trials": len(run.results)} for run in imported.runs],
        "understood": imported.understood,
        "kept": imported.kept,
        "refused": imported.refused,
    }


def _is_criteria(path: Path) -> bool:
    from evaldesk.formats.criteria_file import is_criteria_file

    try:
        return path.is_file() and path.stat().st_size <= MAX_CRITERIA and is_criteria_file(path.read_bytes())
    except OSError:
        return False  # whoever reads it next says why it cannot be read


def _examined_criteria(path: Path, *, is_json: bool) -> dict[str, Any]:
    """A criteria file: what a trial needs in order to pass. Raises FormatError with line and path."""
    from evaldesk.desk.criteria import read_criteria, read_user
    from evaldesk.desk.run_view import needs_words

    criteria, user = read_criteria(path), read_user(path)
    understood = [f"{each.metric} {needs_words(each.metric, each.threshold)}." for each in criteria]
    understood += [f"A simulated user by {user.model or 'the model of the desk'}."] if user else []
    if not is_json:
        click.echo(f"{visible(str(path))}: criteria file")
        for sentence in understood:
            click.echo("  " + visible(sentence))
    return {"file": str(path), "is_valid": True, "format": "criteria", "understood": understood}


def _is_placed(error: EvaldeskError) -> bool:
    return isinstance(error, FormatError)
