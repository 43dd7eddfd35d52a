"""The readable rows of a damaged SQLite database, by ranges of keys: a broken page costs its rows (decision 079)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from sqlalchemy import Integer, Table

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]

_MAX_STRIDE = 2**31
"""Behind a broken page keys are tried at doubled distances up to this one."""


class DamagedRows:
    """The tables of a damaged database, read from a copy that SQLite may change.

    Reading raises nothing for damage: `n_gaps` counts the ranges of each table that could not be read.
    """

    def __init__(self, copy: Path) -> None:
        self._connection = sqlite3.connect(copy, isolation_level=None)
        self._connection.text_factory = _text
        self.n_gaps: Counter[str] = Counter()
        # With a writable schema SQLite takes a file that ends too early, and leaves out broken entries of the schema.
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "writable_schema=ON"):
            self._fetch(f"PRAGMA {pragma}")
        tables = [str(name) for (name,) in self._fetch("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._columns = {name: [str(row[1]) for row in self._fetch(f"PRAGMA table_info('{name}')")] for name in tables}

    def __enter__(self) -> DamagedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def tables(self) -> Collection[str]:
        """The names of the tables; none where the first page is broken."""
        return self._columns.keys()

    def revision(self) -> str | None:
        """The revision of the schema; None where it cannot be read."""
        rows = self._fetch("SELECT version_num FROM alembic_version")
        return str(rows[0][0]) if rows else None

    def last_ids(self) -> Mapping[str, int]:
        """The highest id that each table gave, by the name of the table."""
        return {str(name): last for name, last in self._fetch("SELECT * FROM sqlite_sequence") if isinstance(last, int)}

    def column_of_index(self, table: Table, column: str, index: str) -> Mapping[int, str]:
        """The values of a text column by the id of the row, read from an index: pages of the table may be broken."""
        query = f"SELECT id, {column} FROM {table.name} INDEXED BY {index}"  # noqa: S608 - names of our own schema
        return {number: str(value) for number, value in self._fetch(query) if isinstance(number, int)}

    def rows(self, table: Table) -> Iterator[Row]:
        """The rows of a table, each once, in the order of their keys; a column that the file lacks is None."""
        if table.name not in self._columns:
            return
        ranges = _Ranges.of(table, self._columns[table.name])
        last: Row = ()
        start = ranges.after(last)
        while True:
            try:
                for key, row in self._walk(ranges, start, last):
                    last = key
                    yield row
            except sqlite3.DatabaseError:
                self.n_gaps[table.name] += 1
            else:
                return
            key_behind = self._first_key_behind(ranges, last)
            if key_behind is None or ranges.at(key_behind) == start:
                return
            start = ranges.at(key_behind)

    def _first_key_behind(self, ranges: _Ranges, last: Row) -> Row | None:
        """The first key behind a broken range that begins after `last`."""
        for probe in ranges.probes(last):
            try:
                key = next((key for key, _ in self._walk(ranges, probe, last)), None)
            except sqlite3.DatabaseError:
                continue
            if key is None:
                return None
            return self._lowest_key(ranges, key, last)
        return None

    def _lowest_key(self, ranges: _Ranges, key: Row, last: Row) -> Row:
        """The lowest key from which each row up to `key` can be read."""
        try:
            for row in self._connection.execute(*ranges.down_from(key)):
                lower_key = row[: ranges.n_keys]
                if not _is_above(lower_key, last) or _is_above(lower_key, key):
                    break
                key = lower_key
        except sqlite3.DatabaseError:
            pass
        return key

    def _walk(self, ranges: _Ranges, start: tuple[str, Row], last: Row) -> Iterator[tuple[Row, Row]]:
        """Keys and rows upwards. Raises DatabaseError at the first broken page, and for rows out of order."""
        for row in self._connection.execute(*start):
            key = row[: ranges.n_keys]
            if not _is_above(key, last):
                raise sqlite3.DatabaseError("rows out of order")
            last = key
            yield key, row[ranges.n_keys :]

    def _fetch(self, query: str) -> Sequence[Row]:
        try:
            return self._connection.execute(query).fetchall()
        except sqlite3.DatabaseError:
            return []


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Queries for ranges of one table; `n_numbers` of its key columns, the first ones, are whole numbers."""

    query: str
    keys: Sequence[str]
    n_numbers: int

    @classmethod
    def of(cls, table: Table, columns: Collection[str]) -> _Ranges:
        """The ranges by rowid, or by the primary key of a table without rowids."""
        if table.dialect_options["sqlite"]["with_rowid"]:
            keys, n_numbers = ["rowid"], 1
        else:
            keys = [column.name for column in table.primary_key]
            is_number = [isinstance(column.type, Integer) for column in table.primary_key]
            n_numbers = [*is_number, False].index(False)
        names = [column.name if column.name in columns else "NULL" for column in table.columns]
        return cls(f"SELECT {', '.join([*keys, *names])} FROM {table.name}", keys, n_numbers)  # noqa: S608

    @property
    def n_keys(self) -> int:
        """The number of columns of a key."""
        return len(self.keys)

    def after(self, key: Row) -> tuple[str, Row]:
        """The query of all rows above a key; of all rows for the empty one."""
        return self._query(">", key)

    def at(self, key: Row) -> tuple[str, Row]:
        """The query of the row of this key, and of all above it."""
        return self._query(">=", key)

    def down_from(self, key: Row) -> tuple[str, Row]:
        """The query of the row of this key, and of all below it, downwards."""
        return self._query("<=", key, " DESC")

    def probes(self, last: Row) -> Iterator[tuple[str, Row]]:
        """Queries for rows at doubled distances above a key, and of the last row."""
        numbers = [value for value in last[: self.n_numbers] if isinstance(value, int)]
        numbers = numbers if len(numbers) == self.n_numbers else [0] * (self.n_numbers - 1) + [-1]
        for place in reversed(range(self.n_numbers)):
            stride = 1
            while stride <= _MAX_STRIDE:
                beginning = (*numbers[:place], numbers[place] + stride, *[0] * (self.n_numbers - place - 1))
                yield self._query(">=", beginning)
                stride *= 2
        yield f"{self.query} ORDER BY {self._order(' DESC')} LIMIT 1", ()

    def _query(self, sign: str, key: Row, direction: str = "") -> tuple[str, Row]:
        """The query of the rows whose first columns compare so with a key."""
        columns = ", ".join(self.keys[: len(key)])
        where = f" WHERE ({columns}) {sign} ({', '.join('?' * len(key))})" if key else ""
        return f"{self.query}{where} ORDER BY {self._order(direction)}", key

    def _order(self, direction: str) -> str:
        return ", ".join(f"{name}{direction}" for name in self.keys)


def _is_above(key: Row, other: Row) -> bool:
    """Whether a key is above another one of the same columns; each is above the empty key."""
    try:
        return bool(_comparable(key) > _comparable(other))
    except TypeError:
        return False


def _comparable(key: Row) -> tuple[Any, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in key)


def _text(data: bytes) -> str | bytes:
    """Text as it is stored; bytes that are no UTF-8 stay bytes, which no text column takes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
