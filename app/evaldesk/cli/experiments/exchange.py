"""`evaldesk experiment export` and `import`."""

from __future__ import annotations

from pathlib import Path

import click

from evaldesk.cli.files.exchange_files import open_home, write_masked
from evaldesk.cli.runs.shared import opened_desk, workspace_option
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.experiments.exchange import import_experiment, read_experiment
from evaldesk.desk.imports.files import bytes_of
from evaldesk.desk.imports.importing import AlreadyImportedError, ImportDesk
from evaldesk.desk.trust import Trust
from evaldesk.errors import UsageError
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show


@click.command()
@click.argument("experiment_id", metavar="ID", type=click.IntRange(1))
@click.option("--output", "-o", metavar="FILE", help="The file; default: standard output.")
@workspace_option
def export(experiment_id: int, output: str | None, workspace: str | None) -> None:
    """Write experiment ID with its plan and all of its trials as one JSON file, without secrets.

    \b
    evaldesk experiment export 7 -o experiment.json
    """
    with opened_desk(workspace) as desk:
        data = b"".join(desk.experiments.file_parts(experiment_id))
    write_masked(data, output)


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--again", is_flag=True, help="Store it once more where it was imported before.")
@workspace_option
def import_(file: str, again: bool, workspace: str | None) -> None:
    """Store the experiment of a FILE that `evaldesk experiment export` wrote, with its runs, under a new number.

    \b
    evaldesk experiment import experiment.json
    """
    path, settings = Path(file), open_home(workspace)
    experiment = read_experiment(bytes_of(path), path.name)
    with Trust(settings).opened_store() as store:
        imports = ImportDesk(settings, store, EvalSetDesk(settings, store))
        try:
            experiment_id = import_experiment(store, imports, experiment, path.name, again=again)
        except AlreadyImportedError as error:
            runs = ", ".join(str(run_id) for run_id in error.run_ids)
            raise UsageError(
                f"{path.name} was imported before, as runs {runs}; add --again to store it again"
            ) from error
    name = in_one_line(experiment.plan.name)
    show(f"Imported as experiment {experiment_id}: {name}; show it with: evaldesk experiment show {experiment_id}")
