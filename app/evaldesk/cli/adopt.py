"""`evaldesk adopt`: takes over a project of another tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from evaldesk.cli.files.exchange_files import open_home, visible
from evaldesk.cli.runs.shared import workspace_option
from evaldesk.desk.adopting import Adoption, ProjectFile, load_project, project_tools, survey, write
from evaldesk.errors import EvaldeskError
from evaldesk.registry import import_target, is_present
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show

if TYPE_CHECKING:
    from evaldesk.settings import Settings

MAX_SHOWN = 20
EXPORTS: Mapping[str, str] = {"openai-evals": "evaldesk.integrations.openai_evals.command.adopt:adopt_folder"}
"""Tools whose folder is an export and no project, with the function that takes it over."""


@click.command()
@click.argument("tool", type=click.Choice((*project_tools(), *filter(lambda tool: is_present(EXPORTS[tool]), EXPORTS))))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--write", "is_written", is_flag=True, help="Write the changes that are shown.")
@workspace_option
def adopt(tool: str, folder: Path, is_written: bool, workspace: str | None) -> None:
    """Adopt a project of another tool: import its results, show what changes in tests, CI, dependencies.

    No code of the project is run. Its files are changed only with --write.

    \b
    evaldesk adopt adk .
    evaldesk adopt osmosis my-project --write
    evaldesk adopt openai-evals export --write
    """
    if tool in EXPORTS:
        adopt_folder = cast("Callable[..., None]", import_target(EXPORTS[tool]))
        adopt_folder(folder, open_home(workspace), is_written=is_written)
        return
    adopt_project(tool, folder, is_written=is_written, workspace=workspace)


def adopt_project(tool: str, folder: Path, *, is_written: bool, workspace: str | None) -> None:
    """Import the results of a project, show its changes, and write them."""
    adoption = survey(folder, tool)
    _show_parts(adoption)
    _import_history(folder, [part for part in adoption.parts if part.is_history], open_home(workspace))
    _show_changes(adoption, is_written=is_written)
    if is_written:
        write(adoption.changes)
    show("\nDifferent here:")
    for sentence in load_project(tool).differences:
        show(f"  - {sentence}")


def _show_parts(adoption: Adoption) -> None:
    if not adoption.parts:
        show("Nothing of this tool was found.")
        return
    counts = Counter(part.title for part in adoption.parts)
    for title, n in counts.items():
        show(f"{title} ({n:,}):")
        names = [part.path for part in adoption.parts if part.title == title]
        for name in names[:MAX_SHOWN]:
            show(f"  {visible(name)}")
        if n > MAX_SHOWN:
            show(f"  and {n - MAX_SHOWN:,} more")


def _import_history(folder: Path, parts: list[ProjectFile], settings: Settings) -> None:
    """Import each result as runs; a result that cannot be read, or was imported before, is named."""
    if not parts:
        return
    from evaldesk.desk.imports.files import read_path
    from evaldesk.desk.imports.importing import open_imports
    from evaldesk.desk.imports.staging import proposed_name

    show("\nImported:")
    with open_imports(settings) as imports:
        for part in parts:
            try:
                imported_file = read_path(_place(folder / part.path))
                ids = imports.take_in(
                    replace(imported_file, evalset=None), source=part.path, name=proposed_name(part.path)
                )
            except EvaldeskError as error:
                show(f"  {visible(part.path)}: {printable(str(error))}")
                continue
            runs = ", ".join(map(str, ids.run_ids)) or "none"
            show(f"  {visible(part.path)}: run {runs}")


def _place(path: Path) -> Path:
    """The folder of a run of OpenHands where its metadata are beside its output."""
    return path.parent if path.name == "output.jsonl" and (path.parent / "metadata.json").is_file() else path


def _show_changes(adoption: Adoption, *, is_written: bool) -> None:
    if not adoption.changes:
        show("\nNothing changes in tests, CI and dependencies.")
        return
    show("\nChanged:" if is_written else "\nThese changes are written with --write:")
    for change in adoption.changes:
        show(printable(change.diff).rstrip("\n"))
