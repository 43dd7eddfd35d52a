"""`evaldesk import`: files of other tools into the workspace."""

from __future__ import annotations

from pathlib import Path

import click

from evaldesk.cli.files.exchange_files import open_home, show_words, visible
from evaldesk.errors import UsageError


@click.command(name="import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--from", "format_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--outcome", default="", metavar="KEY", help="Key of the outcome of an OpenHands trial.")
@click.option("--name", help="Name of the eval set; default: the name of the file.")
@click.option("--replace", "replaces", is_flag=True, help="Replace the eval set of that name.")
@click.option("--rename-cases", "renames", is_flag=True, help="Rename cases with the same id, such as roll_2.")
@click.option("--again", is_flag=True, help="Import runs that were imported before once more.")
@click.option("--as-trials", is_flag=True, help="Merge the runs of the files as trials of one run.")
@click.option("--workspace", help="The folder with .evaldesk; default: the current folder.")
def import_(
    files: tuple[Path, ...],
    format_name: str | None,
    outcome: str,
    name: str | None,
    replaces: bool,
    renames: bool,
    again: bool,
    as_trials: bool,
    workspace: str | None,
) -> None:
    """Import each FILE: the eval set into the folder of eval sets, the runs into the database.

    The folder of a run of OpenHands, with output.jsonl and metadata.json, is a FILE too.

    All files are read before anything is stored.

    \b
    evaldesk import airline.json
    evaldesk import evaluation_outputs/swe-bench/run_1 --outcome resolved
    evaldesk import run_1/output.jsonl run_2/output.jsonl --as-trials
    """
    if name and len(files) > 1:
        raise UsageError("--name is for one file; import them one by one")

    from evaldesk.desk.imports.files import as_one_run, read_path
    from evaldesk.desk.imports.importing import open_imports, proposed_name

    read = [(path, read_path(path, format_name, outcome)) for path in files]
    if as_trials:
        read = [(files[0], as_one_run(read))]
    with open_imports(open_home(workspace)) as imports:
        for path, imported in read:
            chosen = name or proposed_name(path.name)
            taken = imports.take_in(
                imported, source=path.name, name=chosen, replaces=replaces, renames=renames, again=again
            )
            click.echo(f"{visible(str(path))}:")
            show_words(imported.understood, imported.kept, imported.refused)
            if taken.evalset_id:
                click.echo(f"  Eval set {chosen}.")
            for run_id in taken.run_ids:
                click.echo(f"  Run {run_id}. `evaldesk open {run_id}` shows it.")
