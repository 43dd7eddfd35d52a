"""A file and a server as the places of a copy: claimed for it, watched while it goes on, opened to all at its end.

The revision of a database into which rows are copied is a mark of its source, and every Evaldesk refuses to open it.
The last transaction of the copy gives it the current revision: a database is whole, or a copy to go on with.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from socket import gethostname
from time import sleep
from typing import TypeAlias

from sqlalchemy import Connection, select

from evaldesk.errors import WorkspaceError
from evaldesk.paths import check_no_links, is_read_only, make_private_folder
from evaldesk.settings import DatabaseUrl
from evaldesk.store import postgresql
from evaldesk.store.database import Database, is_copying
from evaldesk.store.lock import hold_workspace
from evaldesk.store.network_disk import check_disk
from evaldesk.store.postgresql import PostgresqlServer
from evaldesk.store.sqlite import SqliteFile, reading_uri
from evaldesk.store.store import HEAD, alone_in, create, prepare, stored_revision
from evaldesk.store.tables import METADATA, NUMBERED

COPIERS = 7_305_801_401_226_811_234
"""The key of the lock of a process that copies into a database of a server."""


def place_of(database: Path | DatabaseUrl) -> StoreLocation:
    """The file, or the server, as a place to copy from or into; both are asked the same."""
    return ServerPlace(database) if isinstance(database, DatabaseUrl) else FilePlace(database)


class FilePlace:
    """A file of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watching: sqlite3.Connection | None = None
        self.name = str(path)

    @property
    def identity(self) -> str:
        """Tells this database from all others: the machine and the path."""
        return f"{gethostname()}:{self._path.resolve()}"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the workspace of the file: no desk is open on it, and none can be."""
        with hold_workspace(self._path.parent, url=""):
            try:
                yield
            finally:
                if self._watching:
                    self._watching.close()

    def prepare(self) -> None:
        """Bring the file to the current schema. Raises WorkspaceError without one."""
        if not self._path.is_file():
            raise WorkspaceError(f"{self._path} does not exist; name a workspace that has runs or chats")
        prepare(self._path)

    def open(self) -> Database:
        """The database of the file."""
        return Database(SqliteFile(self._path))

    def claim(self, mark: str) -> bool:
        """Take the file for the copy of that mark, made or empty, or go on with it; False for a used file.

        The index of the search goes, which was of other runs. Raises WorkspaceError for the copy of another source.
        """
        check_no_links(self._path.parent)
        check_disk(self._path.parent)
        make_private_folder(self._path.parent)
        with alone_in(self._path.parent):
            if stored_revision(self._path) is None:
                create(self._path, mark)
            with closing(self.open()) as database, database.writing() as connection:
                is_ours = _claim(connection, self.name, mark)
            if is_ours:
                for file in self._path.parent.glob("search.db*"):
                    file.unlink()
        return is_ours

    def state(self) -> object:
        """A value that changes with each write of another process: SQLite's `data_version`."""
        if self._watching is None:
            self._watching = sqlite3.connect(reading_uri(self._path), uri=True, isolation_level=None)
        return () if is_read_only(self._path) else self._watching.execute("PRAGMA data_version").fetchone()

    def last_ids(self, connection: Connection) -> Mapping[str, int]:
        """The last number that each table gave to a row, by the name of the table, as SQLite keeps it."""
        rows = connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence")
        return {row.name: row.seq for row in rows}

    def finish(self, connection: Connection, last_ids: Mapping[str, int]) -> None:
        """Write the numbers where SQLite keeps them, and the revision."""
        connection.exec_driver_sql("DELETE FROM sqlite_sequence")
        for name, last in last_ids.items():
            connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, last))
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = ?", (HEAD,))


class ServerPlace:
    """A database of PostgreSQL."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._own = 0
        self.name = str(url)

    @property
    def identity(self) -> str:
        """Tells this database from all others: the address."""
        return self.name

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock of copies for as long as a connection lives."""
        engine = PostgresqlServer(self._url).reading_engine()
        try:
            with postgresql.telling(self._url), engine.connect() as connection:
                _take_turn(connection, self.name)
                self._own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                connection.commit()
                yield
        finally:
            engine.dispose()

    def prepare(self) -> None:
        """Bring the tables to the current schema. Raises WorkspaceError without any."""
        if not postgresql.has_tables(self._url):
            raise WorkspaceError(f"{self.name} has no tables of Evaldesk; name a database that has runs or chats")
        postgresql.prepare(self._url, HEAD)

    def open(self) -> Database:
        """The database of the server."""
        return Database(PostgresqlServer(self._url))

    def claim(self, mark: str) -> bool:
        """As that of a file: makes the tables, or marks empty ones. Raises WorkspaceError while a desk is open."""
        postgresql.make_tables(self._url, mark)
        with closing(self.open()) as database, database.writing() as connection:
            is_ours = _claim(connection, self.name, mark)
            if is_ours and _is_open_elsewhere(connection, self._own):
                raise WorkspaceError(f"a desk or a command is open on {self.name}; close it, and copy again")
            if is_ours:
                connection.exec_driver_sql("DROP TABLE IF EXISTS search_seen, search_place")
        return is_ours

    def state(self) -> object:
        """Equals an earlier one, too: where the rows of each table are, and the transactions that put them there."""
        with closing(self.open()) as database, database.reading() as connection:
            return [tuple(connection.exec_driver_sql(f'{_ROWS} "{name}"').one()) for name in sorted(METADATA.tables)]

    def last_ids(self, connection: Connection) -> Mapping[str, int]:
        """The last number that each table gave to a row, as the sequences of the tables have it."""
        return {table.name: _last_value(connection, table.name) for table in NUMBERED}

    def finish(self, connection: Connection, last_ids: Mapping[str, int]) -> None:
        """Set the sequences and the revision, and let the server analyse its tables."""
        for name, last in last_ids.items():
            statement = "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s, %s)"
            connection.exec_driver_sql(statement, (name, max(last, 1), last > 0))
        connection.exec_driver_sql("ANALYZE")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = %s", (HEAD,))


StoreLocation: TypeAlias = FilePlace | ServerPlace
N_LOOKS = 20
LOOK_S = 0.1
"""A process that was killed holds its lock until the server has noticed."""

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'evaldesk' AND pid NOT IN (pg_backend_pid(), %s)"
)
_ROWS = "SELECT count(*), sum(hashtextextended(ctid::text || ' ' || xmin::text, 0)) FROM"


def _take_turn(connection: Connection, name: str) -> None:
    for _ in range(N_LOOKS):
        if connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (COPIERS,)).scalar_one():
            return
        sleep(LOOK_S)
    raise WorkspaceError(f"another process copies {name}; wait for its end, or end it first")


def _is_open_elsewhere(connection: Connection, own: int) -> bool:
    """Whether another desk or command stays connected; a server notices a little later that a connection was closed."""
    for _ in range(N_LOOKS):
        connection.exec_driver_sql("SELECT pg_stat_clear_snapshot()")  # a transaction sees one list of connections else
        if not connection.exec_driver_sql(_OTHERS, (own,)).scalar_one():
            return False
        sleep(LOOK_S)
    return True


def _last_value(connection: Connection, table: str) -> int:
    sequence = connection.exec_driver_sql("SELECT pg_get_serial_sequence(%s, 'id')", (table,)).scalar_one()
    last, is_called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()  # noqa: S608
    return int(last) if is_called else 0


def _claim(connection: Connection, name: str, mark: str) -> bool:
    """Whether the database is the unfinished copy of that mark, also because it is empty and was marked now."""
    revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
    if revision == mark:
        return True
    if is_copying(revision):
        raise WorkspaceError(f"{name} is an unfinished copy of another database; finish that, or name an empty one")
    if revision != HEAD:
        raise WorkspaceError(f"{name} was made by another version of Evaldesk ({revision}); name an empty database")
    if any(connection.execute(select(table.primary_key.columns[0]).limit(1)).first() for table in _ALL):
        return False
    connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{mark}'")  # noqa: S608 - hex digits of ours
    return True


_ALL = METADATA.sorted_tables
