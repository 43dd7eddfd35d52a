"""`evaldesk export`: an eval set or a run of the workspace as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evaldesk.cli.exchange_files import open_home, write_bytes
from evaldesk.errors import NotFoundError

if TYPE_CHECKING:
    from evaldesk.settings import Settings

DEFAULT_EVALSET, DEFAULT_RUN = "adk", "adk-results"


@click.command()
@click.argument("what", metavar="EVALSET|RUN")
@click.option("--format", "format_name", metavar="FORMAT", help="adk for an eval set, adk-results for a run.")
@click.option("-o", "--output", metavar="FILE", help="Where to; the stream unless given.")
@click.option("--force", is_flag=True, help="Replace FILE when it is there.")
@click.option("--workspace", help="The folder that holds .evaldesk; the current one unless given.")
def export(what: str, format_name: str | None, output: str | None, force: bool, workspace: str | None) -> None:
    """Give out an eval set by its name, or a run by its number.

    Formats of a run: adk-results, osmosis-results, openhands, atif, otel, csv, and criteria for its
    criteria alone.

    \b
    evaldesk export hello_world --format osmosis-jsonl -o hello.jsonl
    evaldesk export 12 --format csv -o run.csv
    evaldesk export 12 --format criteria -o test_config.json
    """
    settings = open_home(workspace)
    if what.isdecimal():
        data = _run(settings, int(what), format_name or DEFAULT_RUN)
    else:
        data = _evalset(settings, what, format_name or DEFAULT_EVALSET)
    write_bytes(data, output, is_forced=force)


def _run(settings: Settings, run_id: int, format_name: str) -> bytes:
    from evaldesk.desk.exporting import export_run
    from evaldesk.store import Store

    with Store.open(settings.database, must_exist=True) as store:
        return export_run(store, run_id, format_name).data


def _evalset(settings: Settings, name: str, format_name: str) -> bytes:
    from evaldesk.formats.files import write_file
    from evaldesk.store.evalset_files import EvalSetFiles

    files = EvalSetFiles(settings.roots, settings.evalset_folder, settings.state_folder / "trash")
    found = files.list()
    file = next((each for each in found if name in (each.name, each.id)), None)
    if file is None:
        raise NotFoundError.among("eval set", name, [each.name for each in found])
    return write_file(files.read(file.id)[0], format_name)
