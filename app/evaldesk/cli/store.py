"""`evaldesk store`: the database of a workspace, moved to another engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from evaldesk.cli.files.exchange_files import ProgressLine
from evaldesk.cli.runs.shared import json_option
from evaldesk.model.conclusion import counted
from evaldesk.wording.writer import show, show_json

if TYPE_CHECKING:
    from evaldesk.desk.store_copies import TableCopy


@click.group()
def store() -> None:
    """Copy the runs, labels and chats of a workspace into another database.

    \b
    evaldesk store copy . postgresql://evals@db.example/evals
    """


@store.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy(source: str, target: str, is_json: bool) -> None:
    """Copy the database FROM into the empty database TO, and compare all rows.

    FROM and TO are each a folder, which stands for the SQLite file in its .evaldesk, or the address of a database of
    PostgreSQL. Passwords are best in PGPASSWORD or ~/.pgpass.

    No other process may work in either. A copy that was killed or cancelled is finished by the same command; until
    then nothing opens TO. FROM stays as it is.

    \b
    evaldesk store copy . postgresql://evals@db.example/evals
    evaldesk store copy postgresql://evals@db.example/evals ../evals-on-sqlite
    """
    from evaldesk.desk.store_copies import copy_store, named_database

    places = named_database(source, "FROM"), named_database(target, "TO")
    line = ProgressLine(is_shown=not is_json)

    def watch(step: str, table: str, n_done: int, n_total: int) -> None:
        line.show(step.capitalize(), f"rows ({table})", n_done, n_total, "Ctrl-C stops, the same command goes on")

    try:
        tables = copy_store(*places, watch)
    finally:
        line.clear()
    if is_json:
        rows = [{"table": each.name, "n_rows": each.n_rows, "sha256": each.digest} for each in tables]
        show_json({"from": str(places[0]), "to": str(places[1]), "tables": rows})
        return
    _show(tables, *map(str, places))


def _show(tables: Sequence[TableCopy], source: str, target: str) -> None:
    from evaldesk.wording.printable import in_one_line

    filled = [each for each in tables if each.n_rows]
    width = max((len(each.name) for each in filled), default=0)
    for each in filled:
        show(f"  {each.name.ljust(width)}  {each.n_rows:>11,}  {each.digest[:16]}")
    n_rows = sum(each.n_rows for each in tables)
    rows = counted(n_rows, "row")
    show(f"{rows} of {in_one_line(source)} are the same in {in_one_line(target)}, by count and SHA-256.")
    if "://" in target:
        show(f'Let the workspace use it, in evaldesk.toml:\n\n[store]\nurl = "{in_one_line(target)}"')
