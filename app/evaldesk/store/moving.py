"""What past runs and sessions know of an eval set, moved along when its file gets another name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, bindparam, delete, select, update

from evaldesk.model import RunConfig
from evaldesk.store.database import execute_many
from evaldesk.store.tables import LAST_RUN, RUN, SESSION_CASE
from evaldesk.wire import from_json, to_json


def move_evalset(connection: Connection, old_id: str, new_id: str, path: Path) -> None:
    """Give the runs, the last verdicts and the sessions of one eval set its new id and `path`.

    What the new id has already is of another file that stood at `path` before: its last verdicts go.
    """
    runs = connection.execute(select(RUN.c.id, RUN.c.config).where(RUN.c.evalset_id == old_id)).all()
    rows = [{"of_run": run_id, "config": _moved(config, new_id, path)} for run_id, config in runs]
    change = update(RUN).where(RUN.c.id == bindparam("of_run")).values(evalset_id=new_id)
    execute_many(connection, change, rows)
    for table in (LAST_RUN, SESSION_CASE):
        connection.execute(delete(table).where(table.c.evalset_id == new_id))
        connection.execute(update(table).where(table.c.evalset_id == old_id).values(evalset_id=new_id))


def _moved(config: str, evalset_id: str, path: Path) -> str:
    moved = replace(from_json(config, RunConfig), evalset_id=evalset_id, evalset_path=str(path))
    return to_json(moved).decode()
