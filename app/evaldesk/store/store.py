"""The database of a workspace, opened."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType

from sqlalchemy import Connection, bindparam, delete, select, update

from evaldesk.errors import WorkspaceError
from evaldesk.model import RunConfig
from evaldesk.store.clock import Clock, utc_now
from evaldesk.store.database import Database, execute_many
from evaldesk.store.labels import LabelStore
from evaldesk.store.runs.recorded_runs import RecordedRunStore
from evaldesk.store.runs.run_store import RunStore
from evaldesk.store.schema import prepare
from evaldesk.store.sessions import SessionStore
from evaldesk.store.tables import LAST_RUN, RUN, SESSION_CASE
from evaldesk.wire import from_json, to_json


class Store:
    """Runs, labels and chat sessions of a workspace. Any thread may use it, and so may other processes."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.runs = RunStore(database, clock)
        self.recorded_runs = RecordedRunStore(database, clock)
        self.labels = LabelStore(database, clock)
        self.sessions = SessionStore(database, clock)

    @classmethod
    def open(
        cls,
        database: Path,
        *,
        must_exist: bool = False,
        clock: Callable[[], datetime] = utc_now,
        seconds: Callable[[], float] = time.monotonic,
    ) -> Store:
        """Open the SQLite file, created or brought to the current schema if need be.

        `clock` tells the time of day, `seconds` how much of it has passed while the machine was awake. Raises
        WorkspaceError when it cannot be used, or `must_exist` and does not.
        """
        if must_exist and not database.is_file():
            raise WorkspaceError(f"{database} does not exist; start a desk or a run in this workspace first")
        prepare(database)
        return cls(Database(database), Clock(clock, seconds))

    def move_evalset(self, old_id: str, new_id: str, path: Path) -> None:
        """Let runs, last verdicts and sessions of an eval set follow its file to `path`, in one transaction."""
        with self._database.writing() as connection:
            move_evalset(connection, old_id, new_id, path)

    def close(self) -> None:
        """Close the database; all that was written is durable already. May be called again."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def move_evalset(connection: Connection, old_id: str, new_id: str, path: Path) -> None:
    """Give the runs, the last verdicts and the sessions of one eval set its new id and `path`.

    Scores that the new id has already belong to another file that was at `path` before: its last verdicts go.
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
