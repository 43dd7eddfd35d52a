"""A database copied into another one of either engine: in steps, killed and gone on with, compared to the last row.

Both databases are read in the order of the same keys, side by side. Rows that are alike stay, so a copy that was killed
goes on where it was, and takes over the changes of the source since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby, takewhile
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Column, Connection, Integer, Table, bindparam, delete, func, insert, select
from sqlalchemy.exc import DBAPIError

from evaldesk.errors import ConflictError, UsageError, WorkspaceError
from evaldesk.store.copy_places import StoreLocation
from evaldesk.store.database import COPYING, Database, execute_many
from evaldesk.store.tables import METADATA
from evaldesk.store.tables.columns import replacing
from evaldesk.store.tables.media import MEDIA
from evaldesk.store.tables.runs import LAST_RUN

MOST_ROWS = 2_000
MOST_BYTES = 8 * 1024 * 1024
"""Rows of one transaction, and their packed bytes: nobody waits for it, since nobody else has the database open."""

ROWS_READ = 200
MEDIA_READ = 2
"""Rows that are fetched at once; an image or a file has up to 10 MB."""

TABLES = METADATA.sorted_tables
"""All tables, each behind those that its rows belong to."""

Values: TypeAlias = tuple[Any, ...]
Key: TypeAlias = tuple[Any, ...]
Watch: TypeAlias = Callable[[str, str, int, int], None]
"""Is told the step (`copying` or `checking`), the table, and how many of how many rows of all tables are done."""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A table that is the same in both databases: its rows, and the SHA-256 of them in the order of their keys."""

    name: str
    n_rows: int
    digest: str


def copy_database(
    source: StoreLocation, target: StoreLocation, watch: Watch, check_still: Callable[[Database], None]
) -> list[TableCopy]:
    """Copy all rows and give the equal counts and digests at the end; continues an interrupted copy.

    `check_still` raises while somebody works in the source. Raises ConflictError when the target holds something else,
    or the source was changed meanwhile, and WorkspaceError when one of them refuses.
    """
    if source.identity == target.identity:
        raise UsageError(f"{source.name} is the source and the target; name another target")
    with source.hold(), target.hold():
        source.prepare()
        before = source.state()
        with closing(source.open()) as source_database, source_database.reading() as snapshot:
            check_still(source_database)
            is_fresh = target.claim(COPYING + hashlib.sha256(source.identity.encode()).hexdigest()[:24])
            with closing(target.open()) as target_database:
                copy = _Copy(snapshot, target_database, watch)
                source_tables = copy.copy_tables() if is_fresh else copy.compare_tables()
                target_tables = copy.check_tables()
                _refuse_differences(source_tables, target_tables, target, is_fresh=is_fresh)
                if is_fresh:
                    _finish(source, source_database, before, target, target_database)
    return source_tables


def _refuse_differences(
    source_tables: Sequence[TableCopy], target_tables: Sequence[TableCopy], target: StoreLocation, *, is_fresh: bool
) -> None:
    other = [(one, two) for one, two in zip(source_tables, target_tables, strict=True) if one != two]
    if not other:
        return
    one, two = other[0]
    rows = f"table {one.name} has {two.n_rows:,} rows, and {one.n_rows:,} in the source"
    if not is_fresh:
        raise ConflictError(f"{target.name} holds something else: {rows}; name an empty database")
    raise ConflictError(f"{target.name} is not like its source: {rows}, or others; copy again")


def _finish(
    source: StoreLocation, source_database: Database, before: object, target: StoreLocation, target_database: Database
) -> None:
    """Open the copy to all, unless the source was written meanwhile; nobody writes into it during this moment."""
    with _still(source_database):
        if source.state() != before:
            raise ConflictError(
                f"{source.name} was written while it was copied; close the desks on it, and copy again: "
                "only the changes are copied then"
            )
        with source_database.reading() as connection:
            last_ids = source.last_ids(connection)
        with target_database.writing() as connection:
            target.finish(connection, last_ids)


@contextmanager
def _still(database: Database) -> Iterator[None]:
    """Keep all writers out of a database that can be written."""
    with ExitStack() as stack:
        if not database.is_read_only:
            stack.enter_context(database.writing())
        yield


class _Copy:
    """The rows of a snapshot on their way into a database."""

    def __init__(self, snapshot: Connection, target: Database, watch: Watch) -> None:
        self._snapshot = snapshot
        self._target = target
        self._watch = watch
        self._n_rows = {table.name: _count(snapshot, table) for table in TABLES}
        self._n_done = 0

    def copy_tables(self) -> list[TableCopy]:
        """Let each table of the target have the rows of the snapshot; gives those."""
        self._n_done = 0
        return [self._copy(table) for table in TABLES]

    def compare_tables(self) -> list[TableCopy]:
        """The rows of the snapshot; counts that differ are found at once, before anything is read whole."""
        with self._target.reading() as connection:
            counts = {table.name: _count(connection, table) for table in TABLES}
        if counts != self._n_rows:
            return [TableCopy(table.name, self._n_rows[table.name], "") for table in TABLES]
        return [self._sum_table("comparing", self._snapshot, table) for table in TABLES]

    def check_tables(self) -> list[TableCopy]:
        """The rows that the target has now."""
        self._n_done = 0
        with self._target.reading() as connection:
            return [self._sum_table("checking", connection, table) for table in TABLES]

    def _sum_table(self, step: str, connection: Connection, table: Table) -> TableCopy:
        summed = _Sum(table)
        for _, rows in _groups(connection, table):
            summed.add(rows)
            self._tell(step, table, len(rows))
        return summed.result

    def _copy(self, table: Table) -> TableCopy:
        summed, writer = _Sum(table), _Writer(self._target, table)
        with closing(_groups_of(self._target, table)) as there:
            target_group = next(there, None)
            for key, rows in _groups(self._snapshot, table):
                summed.add(rows)
                while target_group and target_group[0] < key:
                    writer.drop(target_group[1])
                    target_group = next(there, None)
                if target_group is None or target_group[0] != key:
                    writer.put(rows)
                else:
                    writer.change(target_group[1], rows)
                    target_group = next(there, None)
                # The target is compared, never a note of progress: decision 170.
                self._tell("copying", table, len(rows))
            while target_group:
                writer.drop(target_group[1])
                target_group = next(there, None)
            writer.flush()
        return summed.result

    def _tell(self, step: str, table: Table, n: int) -> None:
        self._n_done += n
        self._watch(step, table.name, self._n_done, sum(self._n_rows.values()))


class _Writer:
    """Puts rows into a table, changes and drops them, in transactions of many."""

    def __init__(self, target: Database, table: Table) -> None:
        self._target = target
        self._table = table
        self._names = [column.name for column in table.columns]
        self._new: list[Values] = []
        self._changed: list[Values] = []
        self._gone: list[Values] = []
        self._n_bytes = 0

    def put(self, rows: Sequence[Values]) -> None:
        """Rows of a key that is not there."""
        self._new += rows
        self._weigh(rows)

    def change(self, stored_rows: Sequence[Values], rows: Sequence[Values]) -> None:
        """The rows of a key that has `stored_rows` ones."""
        if stored_rows == rows:
            return
        new_keys = {_key(self._table, row) for row in rows}
        self._gone += [row for row in stored_rows if _key(self._table, row) not in new_keys]
        self._changed += rows
        self._weigh(rows)

    def drop(self, rows: Sequence[Values]) -> None:
        """Rows that the source has no more; dependent rows go as well."""
        self._gone += rows
        self._weigh(rows)

    def _weigh(self, rows: Sequence[Values]) -> None:
        self._n_bytes += sum(len(value) for row in rows for value in row if isinstance(value, bytes | str))
        if self._n_bytes > MOST_BYTES or len(self._new) + len(self._changed) + len(self._gone) > MOST_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows in one transaction."""
        if not (self._new or self._changed or self._gone):
            return
        key = self._table.primary_key.columns
        with self._telling(), self._target.writing() as connection:
            same = [column == bindparam(f"of_{column.name}") for column in key]
            deleted_keys = [
                {f"of_{column.name}": row[self._names.index(column.name)] for column in key} for row in self._gone
            ]
            execute_many(connection, delete(self._table).where(*same), deleted_keys)
            execute_many(connection, replacing(connection.dialect.name, self._table), self._as_dicts(self._changed))
            execute_many(connection, insert(self._table), self._as_dicts(self._new))
        self._new, self._changed, self._gone, self._n_bytes = [], [], [], 0

    def _as_dicts(self, rows: Sequence[Values]) -> list[dict[str, Any]]:
        return [dict(zip(self._names, row, strict=True)) for row in rows]

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Name the table where the database refuses a row."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self._target.name}, table {self._table.name}: {error}") from error
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            raise WorkspaceError(f"{self._target.name} refuses a row of table {self._table.name}: {reason}") from error


class _Sum:
    """The digest of the rows of a table."""

    def __init__(self, table: Table) -> None:
        self._name = table.name
        self._n_rows = 0
        self._hash = hashlib.sha256()

    def add(self, rows: Sequence[Values]) -> None:
        """The next rows."""
        self._n_rows += len(rows)
        self._hash.update(msgspec.msgpack.encode(rows))

    @property
    def result(self) -> TableCopy:
        """The table as it was read."""
        return TableCopy(self._name, self._n_rows, self._hash.hexdigest())


def _groups_of(database: Database, table: Table) -> Generator[tuple[Key, list[Values]], None, None]:
    """The rows of a table of a database; its transaction ends with the last, so that a log of SQLite may be cut."""
    with database.reading() as connection:
        yield from _groups(connection, table)


def _groups(connection: Connection, table: Table) -> Iterator[tuple[Key, list[Values]]]:
    """The rows of a table in the order of `_walk`: the rows of each of its keys, in the order of the primary key.

    A server stores the character NUL as its picture, so both databases are read with the picture.
    """
    walk = _walk(table)
    is_server = connection.dialect.name == "postgresql"
    order = [column.collate("C") if is_server and not _is_number(column) else column for column in walk]
    places = [list(table.columns).index(column) for column in walk]
    n_read = MEDIA_READ if table is MEDIA else ROWS_READ
    with connection.execute(select(table).order_by(*order).execution_options(yield_per=n_read)) as result:
        rows = (tuple(_without_zero(value) for value in row) for row in result)
        for key, same in groupby(rows, lambda row: tuple(row[place] for place in places)):
            yield key, sorted(same, key=partial(_key, table))


def _walk(table: Table) -> list[Column[Any]]:
    """The columns in whose order both engines read a table quickly, and alike: the numbers that begin its key.

    Names are sorted by the locale of a server, and only few tables begin with one.
    """
    if table is LAST_RUN:
        return [table.c.run_id, table.c.case_index]
    columns = list(table.primary_key.columns)
    return list(takewhile(_is_number, columns)) or columns[:1]


def _is_number(column: Column[Any]) -> bool:
    return isinstance(column.type, Integer)


def _key(table: Table, row: Values) -> Key:
    return tuple(row[place] for place in _places_of_key(table))


@cache
def _places_of_key(table: Table) -> tuple[int, ...]:
    columns = list(table.columns)
    return tuple(columns.index(column) for column in table.primary_key.columns)


def _without_zero(value: Any) -> Any:
    return value.replace("\0", "\u2400") if isinstance(value, str) and "\0" in value else value


def _count(connection: Connection, table: Table) -> int:
    return connection.scalar(select(func.count()).select_from(table)) or 0
