"""A colleague who may write rows of the database and nothing else, and what would show that a row ran something."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import zstandard
from sqlalchemy import Boolean, Column, Connection, DateTime, Engine, LargeBinary, MetaData, Table, create_engine
from sqlalchemy.exc import DBAPIError

from evaldesk.model import AgentRef, RunConfig
from evaldesk.settings import DatabaseUrl
from evaldesk.store.tables.columns import PLAIN, ZSTD
from evaldesk.wire import from_json, to_json

ROLE = "colleague"
MARKUP = "<x-hostile onload=alert(1)>"
OF_ENGINE = ("search_seen", "search_place")
"""The index of the search, which its desk makes again."""
CANARY = "the words of a file that nobody shared"


@dataclass
class Tripwires:
    """A folder in which a command leaves its mark, a file that must not be read, and an address that must not be asked.

    `texts` are hostile values for any column of text.
    """

    folder: Path
    port: int
    asked: list[str]

    @property
    def marks(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("ran-*"))

    @property
    def command(self) -> str:
        return shlex.join(["touch", str(self.folder / "ran-command")])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def texts(self) -> tuple[str, ...]:
        file = self.folder / "secret.txt"
        return (MARKUP, str(file), f"../../../../../..{file}", self.address, self.command, "hostile:score", "\0")

    def check(self, text: str = "") -> None:
        """Nothing ran, nothing was asked, and a page holds neither the markup nor the file."""
        assert self.marks == []
        assert self.asked == []
        assert "<x-hostile" not in text.lower()
        assert CANARY not in text


@contextmanager
def laid_in(folder: Path) -> Iterator[Tripwires]:
    """Tripwires: the folder has a module whose import leaves a mark, too."""
    folder.mkdir()
    (folder / "secret.txt").write_text(CANARY)
    (folder / "hostile.py").write_text(
        f"open({str(folder / 'ran-module')!r}, 'w').close()\nscore = root_agent = print\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        wires = Tripwires(folder, server.getsockname()[1], [])

        def listen() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with closing(connection):
                        wires.asked.append(connection.recv(200).decode("utf-8", "replace"))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield wires
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def hostile_agent(wires: Tripwires) -> AgentRef:
    """The agent of the attack: a command."""
    return AgentRef("shop", wires.command, root=str(wires.folder), kind="command")


@dataclass
class Colleague:
    """The SQL of a role with SELECT, INSERT and UPDATE; of a file, everybody's."""

    engine: Engine
    tables: MetaData

    def insert_like(self, run_id: int, change: Callable[[RunConfig], RunConfig], **values: Any) -> int:
        """A run whose trials are to be played, with the rows of run `run_id`; its configuration is changed."""
        run = self.tables.tables["run"]
        with self.engine.begin() as connection:
            row = dict(connection.execute(run.select().where(run.c.id == run_id)).one()._mapping)
            del row["id"]
            row["config"] = to_json(change(from_json(row["config"], RunConfig))).decode()
            is_played = values.get("status") == "finished"
            if not is_played:
                row |= dict.fromkeys(("n_passed", "n_failed", "n_errored", "n_unscored"), 0)
            new_id = connection.execute(run.insert().values(row | values).returning(run.c.id)).scalar_one()
            for name in ("run_case", "case_snapshot", "trial"):
                table = self.tables.tables[name]
                for found in connection.execute(table.select().where(table.c.run_id == run_id)).all():
                    own = found._asdict() | {"run_id": new_id}
                    own |= {"verdict": None, "status": "planned"} if name == "trial" and not is_played else {}
                    connection.execute(table.insert().values(own))
        return int(new_id)

    def change_config(self, run_id: int, change: Callable[[RunConfig], RunConfig]) -> None:
        run = self.tables.tables["run"]
        with self.engine.begin() as connection:
            stored = connection.execute(run.select().where(run.c.id == run_id)).one()
            config = to_json(change(from_json(stored.config, RunConfig))).decode()
            connection.execute(run.update().where(run.c.id == run_id).values(config=config))


def colleague_of(place: Path | DatabaseUrl) -> Colleague:
    """The colleague, whose tables and columns are those that the database itself tells."""
    if isinstance(place, DatabaseUrl):
        import psycopg

        with psycopg.connect(host=place.host, dbname=place.database, user=place.user, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {ROLE}" if _has_role(owner) else f"CREATE ROLE {ROLE} LOGIN")
            owner.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {ROLE}")
            owner.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")
        engine = create_engine(f"postgresql+psycopg://{ROLE}@/{place.database}?host={place.host}")
    else:
        engine = create_engine(f"sqlite:///{place}")
    tables = MetaData()
    tables.reflect(engine)
    return Colleague(engine, tables)


def _has_role(owner: Any) -> bool:
    return owner.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone() is not None


@contextmanager
def hostile_rows(colleague: Colleague, table: Table, columns: Sequence[Column[Any]], wires: Tripwires) -> Iterator[int]:
    """Hostile values in these columns of all rows of a table, which are as before at the end; gives how many took."""
    with colleague.engine.begin() as connection:
        rows = [dict(row._mapping) for row in connection.execute(table.select())]
        if not rows and table.name not in OF_ENGINE:
            connection.execute(table.insert().values(_made_row(connection, table)))
            rows = [dict(row._mapping) for row in connection.execute(table.select())]
    n_written, written = 0, list[tuple[dict[str, Any], dict[str, Any]]]()
    texts = cycle(wires.texts)
    for row in rows:
        now = dict(row)
        written.append((now, row))
        values = {column.name: hostile_value(column, row, texts) for column in columns}
        plain = {name: value for name, value in values.items() if name not in table.primary_key.columns}
        for some in (plain, *({name: values[name]} for name in values if name not in plain)):
            with suppress(DBAPIError), colleague.engine.begin() as connection:  # a key that others lead to stays
                connection.execute(table.update().where(*_of_row(table, now)).values(some))
                n_written += 1
                now |= {name: value for name, value in some.items() if name in table.primary_key.columns}
    yield n_written
    with colleague.engine.begin() as connection:
        for now, row in written:
            connection.execute(table.update().where(*_of_row(table, now)).values(row))


def _made_row(connection: Connection, table: Table) -> dict[str, Any]:
    """A row for a table that has none, which belongs to the first rows of others."""
    row: dict[str, Any] = {column.name: _plain_value(column) for column in table.columns if not column.nullable}
    for constraint in table.foreign_key_constraints:
        first = connection.execute(constraint.referred_table.select()).first()
        if first:
            for element in constraint.elements:
                row[element.parent.name] = first._mapping[element.column.name]
    return row


def _plain_value(column: Column[Any]) -> object:
    kind = column.type
    if isinstance(kind, LargeBinary):
        return b'["text"]'
    if isinstance(kind, DateTime):
        return datetime(2026, 1, 1, tzinfo=UTC)
    return "text" if kind.python_type is str else kind.python_type(0)


def _of_row(table: Table, row: dict[str, Any]) -> list[Any]:
    return [column == row[column.name] for column in table.primary_key.columns]


def hostile_value(column: Column[Any], row: dict[str, Any], texts: Iterator[str]) -> object:
    """A hostile value of the type of the column; JSON and packed values stay such, with hostile texts in them."""
    value, kind = row[column.name], column.type
    if isinstance(kind, LargeBinary):
        return _hostile_bytes(value, row.get("codec"), texts)
    if isinstance(kind, Boolean):
        return not value
    if isinstance(kind, DateTime):
        return datetime(1, 1, 1, tzinfo=UTC)
    python = kind.python_type if kind.__class__.__name__ not in ("NullType", "TSVECTOR") else str
    if python in (int, float):
        return python(-(2**31))
    with suppress(TypeError, ValueError):
        if isinstance(found := json.loads(value), dict | list):
            return json.dumps(with_texts(found, texts))
    return next(texts).replace("\0", "")


def _hostile_bytes(value: bytes, codec: int | None, texts: Iterator[str]) -> bytes:
    plain = zstandard.ZstdDecompressor().decompress(value) if codec == ZSTD else value
    try:
        changed = json.dumps(with_texts(json.loads(plain), texts)).encode()
    except ValueError:
        return b"<x-hostile>" + value
    return changed if codec in (PLAIN, None) else zstandard.ZstdCompressor().compress(changed)


def with_texts(value: Any, texts: Iterator[str]) -> Any:
    """The JSON value with a hostile text in the place of each of its texts, or behind it where that names a choice."""
    if isinstance(value, dict):
        return {key: with_texts(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [with_texts(each, texts) for each in value]
    return next(texts) if isinstance(value, str) else value


def columns_of(colleague: Colleague) -> Iterator[tuple[Table, Column[Any]]]:
    """Every column of every table that the database has."""
    for table in colleague.tables.sorted_tables:
        for column in table.columns:
            yield table, column
