"""What all tables are made of: their base, moments in UTC, packed values, and SQL that differs between the engines."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import msgspec
import zstandard
from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Float,
    ForeignKeyConstraint,
    FromClause,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import declared_attr, registry
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from evaldesk.errors import DamagedDatabaseError, WorkspaceError
from evaldesk.process_setup import gc_paused
from evaldesk.store.tables.blocks import BLOCKS, MAX_UNPACKED, Piece, pack_blocks, whole_json
from evaldesk.wire import from_json, to_json

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
}


class UtcTime(TypeDecorator[datetime]):
    """A moment: aware on the way in, aware and in UTC on the way out, independent of the database's form."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        aware = value.replace(tzinfo=UTC) if value and value.tzinfo is None else value
        return aware.astimezone(UTC) if aware else None


class Row(SQLModel, registry=registry(metadata=MetaData(naming_convention=_NAMES))):
    """The tables have a registry of their own: a user's SQLModel tables in the same process never meet them.

    A table is called after its class: `run_case` for RunCase.
    """

    @declared_attr.directive
    def __tablename__(cls) -> str:  # noqa: N805 - SQLAlchemy asks each class
        return re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower()


class OfRun(Row):
    """Names its run in its key."""

    run_id: int = Field(primary_key=True)


class OfCase(OfRun):
    """Names its case of a run in its key."""

    case_index: int = Field(primary_key=True)


class OfTrial(OfCase):
    """Names its trial in its key."""

    trial_index: int = Field(primary_key=True)


def cascade(columns: list[str], parent: str, parent_columns: list[str]) -> ForeignKeyConstraint:
    """A foreign key whose rows go with the row they belong to."""
    return ForeignKeyConstraint(columns, [f"{parent}.{name}" for name in parent_columns], ondelete="CASCADE")


def of_run() -> ForeignKeyConstraint:
    """The rows go with their run."""
    return cascade(["run_id"], "run", ["id"])


def of_case() -> ForeignKeyConstraint:
    """The rows go with their case of a run."""
    return cascade(["run_id", "case_index"], "run_case", ["run_id", "case_index"])


def of_trial() -> ForeignKeyConstraint:
    """The rows go with their trial."""
    return cascade(["run_id", "case_index", "trial_index"], "trial", ["run_id", "case_index", "trial_index"])


T = TypeVar("T")

PLAIN = 0
ZSTD = 1

# A compressor must not be used by two threads at once, and making one costs as much as using it.
_of_thread = threading.local()


def pack(value: object) -> tuple[int, bytes]:
    """The codec and the bytes of a value of `evaldesk.model`."""
    return pack_json(to_json(value))


def pack_json(data: bytes) -> tuple[int, bytes]:
    """The same of its JSON."""
    frame = _compressor().compress(data)
    return (ZSTD, frame) if len(frame) < len(data) else (PLAIN, data)


def pack_pieces(pieces: Sequence[Piece], head: object) -> tuple[int, bytes]:
    """The same of a long value whose JSON the pieces are, with its `head`."""
    return BLOCKS, pack_blocks(pieces, to_json(head), _compressor())


def unpack(codec: int, data: bytes, kind: type[T], change: Callable[[bytes], bytes] = bytes) -> T:
    """The value that `pack` was given; `change` changes its JSON before it is read.

    Raises WorkspaceError for a codec of a newer Evaldesk, and for a packed bomb, DamagedDatabaseError for bytes that
    were never packed, and msgspec.ValidationError for a value of another kind.
    """
    if codec not in (PLAIN, ZSTD, BLOCKS):
        raise WorkspaceError(f"the database holds a value packed with codec {codec}; a newer Evaldesk can read it")
    try:
        if codec == ZSTD and zstandard.frame_content_size(data) > MAX_UNPACKED:
            raise WorkspaceError(f"the database holds a value that unpacks to more than {MAX_UNPACKED // 2**20} MiB")
        if codec == BLOCKS:
            return from_json(change(whole_json(data)), kind)
        return from_json(change(zstandard.ZstdDecompressor().decompress(data) if codec == ZSTD else data), kind)
    except msgspec.ValidationError:
        raise
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise DamagedDatabaseError.at("the database", f"a packed value: {error}") from error


def unpacked_size(codec: int, data: bytes) -> int:
    """The bytes of the JSON of a packed value, without unpacking it; 0 for bytes that were never packed."""
    if codec != ZSTD:
        return len(data)
    try:
        return max(zstandard.frame_content_size(data), 0)
    except zstandard.ZstdError:
        return 0


def read_packed(connection: Connection, table: Table, kind: type[T], *where: ColumnElement[bool]) -> T | None:
    """The packed value of a row of the table; None where there is none."""
    row = connection.execute(select(table.c.codec, table.c.data).where(*where)).first()
    return None if row is None else unpack(row.codec, row.data, kind)


def unpack_all(rows: Iterable[tuple[int, bytes]], kind: type[T]) -> tuple[T, ...]:
    """The values of many rows, in order."""
    with gc_paused():  # each is small, and all of them are many
        return tuple(unpack(codec, data, kind) for codec, data in rows)


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_of_thread, "compressor"):
        _of_thread.compressor = zstandard.ZstdCompressor(level=3)
    compressor: zstandard.ZstdCompressor = _of_thread.compressor
    return compressor


MOST_VALUES = 500
"""Values of one list of a statement."""


def pieces(values: Sequence[T]) -> Iterable[Sequence[T]]:
    """The values in lists that a statement may hold."""
    return (values[start : start + MOST_VALUES] for start in range(0, len(values), MOST_VALUES))


def upsert(dialect: str, table: Table) -> Any:
    """An INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`, in the words of `dialect`."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


@cache
def replacing(dialect: str, table: Table) -> Any:
    """An INSERT that gives a row with the same key the values of the new one."""
    statement, key = upsert(dialect, table), list(table.primary_key)
    values = {column.name: statement.excluded[column.name] for column in table.columns if column not in key}
    if not values:
        return statement.on_conflict_do_nothing(index_elements=key)
    return statement.on_conflict_do_update(index_elements=key, set_=values)


@cache
def adding(dialect: str, table: Table, name: str) -> Any:
    """An INSERT that adds the number of that name to the one of a row with the same key."""
    statement = upsert(dialect, table)
    total = {name: table.c[name] + statement.excluded[name]}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=total)


def at(table: Table, key: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """The conditions of the rows with these values."""
    return [table.c[name] == value for name, value in key.items()]


class DatabaseSeconds(FunctionElement[float]):
    """This moment by the clock of the database, which all processes share: seconds since 1970."""

    inherit_cache = True
    type = Float()


@compiles(DatabaseSeconds)
def _seconds(element: Any, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseSeconds, "postgresql")
def _seconds_on_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    return "cast(extract(epoch from clock_timestamp()) as double precision)"


class JsonItem(FunctionElement[int]):
    """A number of a JSON array, by its place; null where there is none."""

    inherit_cache = True
    type = Integer()


@compiles(JsonItem)
def _json_item(element: Any, compiler: Any, **options: Any) -> str:
    array, at = element.clauses
    return f"json_extract({compiler.process(array, **options)}, '$[' || {compiler.process(at, **options)} || ']')"


@compiles(JsonItem, "postgresql")
def _json_item_on_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    array, at = element.clauses
    return f"CAST({compiler.process(array, **options)} ->> {compiler.process(at, **options)} AS INTEGER)"


def json_rows(dialect: str, array: str) -> tuple[FromClause, ColumnElement[int], ColumnElement[Any]]:
    """The items of a JSON array as rows: the rows, the place of each from 0, and the item."""
    text = bindparam("items", array, type_=Text, unique=True)
    if dialect == "sqlite":
        rows = func.json_each(text).table_valued("key", "value", name="item")
        return rows, rows.c.key, rows.c.value
    elements = func.json_array_elements(cast(text, JSON))
    rows = elements.table_valued("value", with_ordinality="key", name="item").render_derived()
    return rows, cast(rows.c.key - 1, Integer), rows.c.value


MOST_PARAMETERS = 500
"""Values of a list that are parameters of their own; more are one JSON array."""


def is_among(column: ColumnElement[Any], values: Sequence[Any], dialect: str) -> ColumnElement[bool]:
    """Whether the column has one of any number of texts, or of integers."""
    if len(values) <= MOST_PARAMETERS:
        return column.in_(values)
    rows, _, item = json_rows(dialect, json.dumps([*values]))
    if dialect == "postgresql":
        # The text of a JSON value, without its quotation marks.
        item = cast(item.op("#>>")(literal_column("'{}'::text[]")), Integer if isinstance(values[0], int) else String)
    return column.in_(select(item).select_from(rows))


class ConfigText(FunctionElement[str]):
    """A text of the run's configuration, by its key; null where there is none."""

    inherit_cache = True
    type = String()


@compiles(ConfigText)
def _config_text(element: Any, compiler: Any, **options: Any) -> str:
    column, key = element.clauses
    return f"json_extract({compiler.process(column, **options)}, '$.' || {compiler.process(key, **options)})"


@compiles(ConfigText, "postgresql")
def _config_text_on_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    column, key = element.clauses
    return f"(({compiler.process(column, **options)})::json ->> {compiler.process(key, **options)})"
