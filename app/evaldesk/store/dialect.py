"""SQLite and PostgreSQL, as far as they differ: connections, refusals, and the SQL that each says in its own way."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, Engine, String, Table
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from evaldesk.store.database import Database

N_READERS = 8
QUEUE_S = 60


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """The bytes that the disk got back, and those that stay in the file for later rows."""

    n_given_back: int
    n_kept: int


class Dialect(Protocol):
    """One database, reached in the way of its engine."""

    @property
    def name(self) -> str:
        """The place of the database, as messages name it."""

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be stored."""

    def reading_engine(self) -> Engine:
        """Connections that cannot write; each transaction sees one state throughout."""

    def writing_engine(self) -> Engine:
        """One connection whose transactions keep all other writers out, of this process and of others."""

    def check_place(self) -> None:
        """Raise LostDatabaseError when the database is not where it was opened."""

    def telling_damage(self) -> AbstractContextManager[None]:
        """Raise DamagedDatabaseError where the engine finds its own data damaged, and what else it tells of itself."""

    def refusal(self, error: OperationalError) -> str:
        """The reason for which the machine refuses, so that a retry may succeed; empty for an error of our SQL."""

    def check(self, connection: Connection) -> None:
        """Read all stored data. Raises DamagedDatabaseError when some is damaged."""

    def give_back(self, database: Database) -> FreedSpace:
        """Give the disk back the space of removed rows."""

    def write_log_back(self, writer: Engine) -> None:
        """Shorten the log of the database, where it has one of its own."""

    def before_closing(self, writer: Engine) -> None:
        """Leave the database in good order; never waits for another writer."""


def upsert(dialect: str, table: Table) -> Any:
    """An INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`, in the words of `dialect`."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


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
