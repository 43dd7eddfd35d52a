"""`evaldesk import`: files of other tools into the workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from evaldesk.cli.files.exchange_files import ProgressLine, map_option, open_home, show_words, visible
from evaldesk.cli.runs.shared import workspace_option
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.wording.writer import show, show_json

if TYPE_CHECKING:
    from evaldesk.desk.imports.importing import TakenIn
    from evaldesk.model import EvalSet


@click.command(name="import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--from", "format_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--outcome", default="", metavar="KEY", help="Key of the outcome of an OpenHands trial.")
@map_option
@click.option("--name", help="Name of the eval set; default: the name of the file.")
@click.option("--replace", "replaces", is_flag=True, help="Replace the eval set of that name.")
@click.option("--rename-cases", "renames", is_flag=True, help="Rename cases with the same id, such as roll_2.")
@click.option("--again", is_flag=True, help="Import runs that were imported before once more.")
@click.option("--as-trials", is_flag=True, help="Merge the runs of the files as trials of one run.")
@click.option("--json", "is_json", is_flag=True, help="Print the progress and the results, a JSON object a line.")
@workspace_option
def import_(
    files: tuple[Path, ...],
    format_name: str | None,
    outcome: str,
    columns: dict[str, str] | None,
    name: str | None,
    replaces: bool,
    renames: bool,
    again: bool,
    as_trials: bool,
    is_json: bool,
    workspace: str | None,
) -> None:
    """Import each FILE: the eval set into the folder of eval sets, the runs into the database.

    A folder of results of Osmosis, OpenHands or Harbor is a FILE too, and so is an export of OpenAI Evals, whose
    files are read together, also where they are named one by one.

    All files are read and checked before anything is stored. A file is stored whole or not at all: Ctrl-C
    cancels the import of a file, a killed one is removed by the next start, and others can write meanwhile.

    \b
    evaldesk import airline.json
    evaldesk import evaluation_outputs/swe-bench/run_1 --outcome resolved
    evaldesk import eval.json runs.json output_items.jsonl
    evaldesk import questions.csv --map input=question,expected=answer,tags=topic
    evaldesk import run_1/output.jsonl run_2/output.jsonl --as-trials
    """
    if columns is not None and (format_name or outcome or as_trials):
        raise UsageError("--map reads rows of any data set; leave --from, --outcome and --as-trials out")
    from evaldesk.desk.imports.files import as_one_run, group_exports, read_together
    from evaldesk.desk.imports.importing import Arrival, open_imports

    groups = group_exports(files, format_name) if columns is None else [(path,) for path in files]
    if name and len(groups) > 1:
        raise UsageError("--name is for one file; import them one by one")
    shows = [_JsonLines(paths[0]) if is_json else _Terminal(paths[0]) for paths in groups]
    try:
        both = zip(groups, shows, strict=True)
        contents = [(paths, read_together(paths, format_name, outcome, show.reading, columns)) for paths, show in both]
    except (KeyboardInterrupt, EvaldeskError) as error:
        for show in shows:
            show.broken_off("cancelled" if isinstance(error, KeyboardInterrupt) else "failed")
        raise
    if as_trials:
        one_run = as_one_run([(paths[0], imported) for paths, imported in contents])
        contents, shows = [(files[:1], one_run)], shows[:1]
    arrivals = [
        Arrival(imported, paths[0].name, name or _name_of(paths, imported.evalset)) for paths, imported in contents
    ]
    n_stored = 0
    with open_imports(open_home(workspace)) as imports:
        try:
            with imports.begin_all(arrivals, replaces=replaces, renames=renames, again=again) as starts:
                for arrival, start, show in zip(arrivals, starts, shows, strict=True):
                    ids = imports.finish(start, show.progress)
                    n_stored += 1
                    imported_file = arrival.contents
                    show.show_stored(
                        ids, arrival.name, (imported_file.understood, imported_file.kept, imported_file.refused)
                    )
        except (KeyboardInterrupt, EvaldeskError) as error:
            for show in shows[n_stored:]:
                show.broken_off("cancelled" if isinstance(error, KeyboardInterrupt) else "failed")
            raise


def _name_of(paths: Sequence[Path], evalset: EvalSet | None) -> str:
    """The name of the eval set of a file, or of an export in several files, which is that of its eval."""
    from evaldesk.desk.imports.staging import proposed_name

    return proposed_name(evalset.id.replace(".", "_") if evalset and len(paths) > 1 else paths[0].name)


Words: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[str]]
"""The understood, the kept and the refused parts of a file, in sentences."""


class _Terminal:
    """The import of one file for a person: a line that changes, and then the result."""

    def __init__(self, path: Path) -> None:
        self._path, self._line = path, ProgressLine()

    def reading(self, n_done: int, n_total: int) -> None:
        """Show the number of read bytes."""
        self._line.show(f"Reading {visible(self._path.name)}", "MiB", n_done / 2**20, n_total / 2**20)

    def progress(self, n_done: int, n_total: int) -> None:
        """So much is stored."""
        self._line.show(f"Importing {visible(self._path.name)}", "cases and trials", n_done, n_total)

    def broken_off(self, status: str) -> None:
        """Nothing of the file is stored."""
        self._line.clear()
        if status == "cancelled":
            show(f"evaldesk: cancelled; nothing of {visible(self._path.name)} is stored", err=True)

    def show_stored(self, ids: TakenIn, name: str, words: Words) -> None:
        """The eval set and the runs of the file are stored."""
        self._line.clear()
        show(f"{visible(str(self._path))}:")
        show_words(*words)
        if ids.evalset_id:
            show(f"  Eval set {name}.")
        for run_id in ids.run_ids:
            show(f"  Run {run_id}. `evaldesk open {run_id}` shows it.")


class _JsonLines:
    """The import of one file for a program: an object for each percent that is read or stored, and for the result."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reading = _on_change(self._say_read)
        self.progress = _on_change(self._say_stored)

    def _say_read(self, n_done: int, n_total: int) -> None:
        self._say("reading", n_done=n_done, n_total=n_total)

    def _say_stored(self, n_done: int, n_total: int) -> None:
        self._say("importing", n_done=n_done, n_total=n_total)

    def broken_off(self, status: str) -> None:
        """Nothing of the file is stored."""
        self._say(status)

    def show_stored(self, ids: TakenIn, name: str, words: Words) -> None:
        """The eval set and the runs of the file are stored."""
        sentences = dict(zip(("understood", "kept", "refused"), words, strict=True))
        self._say("done", evalset=name if ids.evalset_id else None, runs=ids.run_ids, **sentences)

    def _say(self, status: str, **values: object) -> None:
        show_json({"file": str(self._path), "status": status} | values)


def _on_change(show: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Show progress when its percentage changes."""
    last = -1

    def progress(n_done: int, n_total: int) -> None:
        nonlocal last
        percent = 100 * n_done // max(n_total, 1)
        if percent != last:
            last = percent
            show(n_done, n_total)

    return progress
