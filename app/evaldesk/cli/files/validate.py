"""`evaldesk validate`: the format of a file, its contents, and its faults."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from evaldesk.cli.files.exchange_files import read_path, report, show_words, visible
from evaldesk.errors import EvaldeskError, FormatError, UsageError

EXIT_VALID, EXIT_INVALID = 0, 2


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--from", "format_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--json", "is_json", is_flag=True, help="Print a list with an object for each file.")
def validate(files: tuple[Path, ...], format_name: str | None, is_json: bool) -> None:
    """Show format, cases, trials, unused keys and errors of each FILE.

    A criteria file is held against the metrics that there are, evaldesk.toml and a run file of `run submit` against
    their keys.

    Exit code 0: all can be read; 2: not all.

    \b
    evaldesk validate evalsets/*.evalset.json
    evaldesk validate test_config.json evaldesk.toml
    evaldesk validate airline.json --json
    """
    found = [_examined(path, format_name, is_json=is_json) for path in files]
    if is_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    sys.exit(EXIT_VALID if all(each["is_valid"] for each in found) else EXIT_INVALID)


def _examined(path: Path, format_name: str | None, *, is_json: bool) -> dict[str, Any]:
    from evaldesk.desk.criteria.criteria import holds_criteria
    from evaldesk.formats.files import title_of

    try:
        if format_name is None and holds_criteria(path):
            return _examined_criteria(path, is_json=is_json)
        if format_name is None and path.suffix == ".toml" and path.is_file():
            return _examined_toml(path, is_json=is_json)
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


def _examined_criteria(path: Path, *, is_json: bool) -> dict[str, Any]:
    """A criteria file: the conditions of a passed trial. Raises FormatError with line and path."""
    from evaldesk.desk.criteria.criteria import read_criteria, read_user
    from evaldesk.wording.metrics import needs_words

    criteria, user = read_criteria(path), read_user(path)
    understood = [f"{each.metric}: {needs_words(each.metric, each.threshold)}." for each in criteria]
    understood += [f"A simulated user by {user.model or 'the model of the desk'}."] if user else []
    return _found(path, "criteria", "criteria file", understood, is_json=is_json)


def _examined_toml(path: Path, *, is_json: bool) -> dict[str, Any]:
    """The settings of a workspace, or a run file. Raises UsageError with the fault."""
    from evaldesk.desk.runs.file import is_run_file, read_run_file
    from evaldesk.settings import CONFIG_NAME

    if path.name == CONFIG_NAME:
        return _found(path, "settings", "settings of a workspace", _settings_sentences(path), is_json=is_json)
    if not is_run_file(path):
        raise UsageError(
            f"{path}: of TOML, {CONFIG_NAME} and the run files of `evaldesk run submit` are validated, which have the "
            "sections experiment and evaluation; this is neither"
        )
    asked = read_run_file(path)
    understood = [
        f"{asked.rollout} ({asked.entrypoint}) with {asked.model_path} on {asked.dataset}.",
        f"A trial passes from a reward of {asked.pass_threshold:g} on.",
    ]
    return _found(path, "run-file", "run file", understood, is_json=is_json)


def _settings_sentences(path: Path) -> list[str]:
    from evaldesk.desk.named_agents import declared_agents
    from evaldesk.settings import read_settings

    home = path.resolve().parent
    settings = read_settings(home, (), environment={})
    agents = declared_agents(settings, home)
    lists = (
        ("Agents", [ref.id for ref in agents]),
        ("Models", settings.models),
        ("Judges", settings.judges),
        ("Metrics", list(settings.functions)),
    )
    return [f"{title}: {', '.join(names)}." for title, names in lists if names]


def _found(path: Path, name: str, title: str, understood: list[str], *, is_json: bool) -> dict[str, Any]:
    """The kind of a file without cases, in words and as JSON."""
    if not is_json:
        click.echo(f"{visible(str(path))}: {title}")
        for sentence in understood:
            click.echo("  " + visible(sentence))
    return {"file": str(path), "is_valid": True, "format": name, "understood": understood}


def _is_placed(error: EvaldeskError) -> bool:
    return isinstance(error, FormatError)
