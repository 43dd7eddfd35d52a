"""A database of PostgreSQL: its connections, its refusals, and its tables brought to the current schema."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from evaldesk.errors import UsageError, WorkspaceError
from evaldesk.settings import DatabaseUrl
from evaldesk.store.database import N_READERS, QUEUE_S, REVISIONS, FreedSpace, check_whole, revision_of
from evaldesk.store.search import numbers_of
from evaldesk.store.tables import METADATA
from evaldesk.store.word_index import Seen, WordIndex

if TYPE_CHECKING:
    from evaldesk.store.database import Database

LOCK_TIMEOUT_S = 30
STILL_S = 20
"""A process that stands still while it writes keeps all others from it for no longer: less than they wait."""
CONNECT_TIMEOUT_S = 30
WRITERS = 7_305_801_401_226_811_233
"""The key of the lock that a writing transaction holds, which is of this database alone; any number of ours."""

_REFUSALS = {
    "08": "the connection was lost",
    "25006": "the server takes no writes",
    "25P03": f"this process stood still for {STILL_S} s while it wrote, and another one had its turn",
    "42501": "its user may not do this; docs/store.md has the rights of each role",
    "40": "another transaction was in the way",
    "53": "the server has no room for it",
    "55P03": f"another process has been writing for {LOCK_TIMEOUT_S} s; try again later",
    "57": "the server ended the connection",
}
"""Refusals of the server by their code or its class, and not of our SQL: a retry may succeed."""

_TOO_LONG = "54"
_MAX_NAME = 2_600
"""Bytes of an id that fit into a row of an index, beside the other columns of it."""


class PostgresqlServer:
    """The database at `url`. One transaction writes at a time, whichever process it is of, as in a file of SQLite."""

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self.name = str(url)

    @cached_property
    def is_read_only(self) -> bool:
        """Whether the user of the address may only read: the role `reader` of docs/store.md."""
        reader = self.reading_engine()
        with telling(self._url), _dispose_after(reader), reader.begin() as connection:
            may_write = "SELECT has_table_privilege(to_regclass('run'), 'INSERT')"
            return connection.exec_driver_sql(may_write).scalar() is False

    def reading_engine(self) -> Engine:
        """Connections that cannot write."""
        return _engine(self._url, N_READERS, _read_only)

    def writing_engine(self) -> Engine:
        """One connection whose transactions wait for those of all other processes."""
        engine = _engine(self._url, 1, still=f" -c idle_in_transaction_session_timeout={STILL_S}s")

        @event.listens_for(engine, "begin")
        def wait_for_turn(connection: Connection) -> None:
            # One writer at a time, as in SQLite, so that every read before a write holds: decision 127.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (WRITERS,))

        return engine

    def check_place(self) -> None:
        """Nothing: a connection stays with its database, which cannot be dropped meanwhile."""

    @contextmanager
    def telling_damage(self) -> Iterator[None]:
        """Raise WorkspaceError where the server refuses, also in reading, and UsageError for a name too long."""
        try:
            yield
        except DBAPIError as error:
            code = getattr(error.orig, "sqlstate", None) or ""
            if code.startswith(_TOO_LONG):
                raise UsageError(
                    f"an id or a name is too long for PostgreSQL, which finds up to {_MAX_NAME:,} bytes; shorten it"
                ) from error
            reason = _refusal(error)
            if not reason:
                raise
            message = " ".join(str(error.orig).split())
            raise WorkspaceError(f"{self.name}: {reason} ({message}); nothing that was stored is lost") from error

    def engine_version(self, connection: Connection) -> str:
        """`PostgreSQL 15.13`, without the words of its packagers."""
        version = str(connection.exec_driver_sql("SHOW server_version").scalar_one())
        return f"PostgreSQL {version.partition(' ')[0]}"

    def check(self, connection: Connection) -> None:
        """No faults: PostgreSQL checks its own pages."""

    def give_back(self, database: Database) -> FreedSpace:
        """Nothing: the server keeps the space of removed rows for later ones, and its vacuum gives it back."""
        return FreedSpace(0, 0)

    def word_index(self, database: Database) -> WordIndex:
        """Tables beside the others."""
        return WordTables(database)

    def try_hold(self, name: str) -> Callable[[], None] | None:
        """Hold a lock of the server, which ends it when its own connection is lost (decision 510)."""
        engine = _engine(self._url, 1).execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self.telling_damage():
                connection = engine.connect()
                query = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
                if connection.exec_driver_sql(query, (f"evaldesk {name}",)).scalar_one():
                    return partial(_end_hold, connection)
                connection.close()
        except BaseException:
            engine.dispose()
            raise
        engine.dispose()
        return None

    def write_log_back(self, writer: Engine) -> None:
        """Nothing: the server writes its log back itself."""

    def before_closing(self, writer: Engine) -> None:
        """Nothing: the server gathers its own advice."""


def _end_hold(connection: Connection) -> None:
    connection.invalidate()  # a pool would keep the connection open, and its lock
    connection.engine.dispose()


def _refusal(error: DBAPIError) -> str:
    """The reason for which the server refuses; empty for an error of our SQL."""
    code = getattr(error.orig, "sqlstate", None)
    if code:
        return _REFUSALS.get(code, _REFUSALS.get(code[:2], ""))
    return "the server does not answer" if isinstance(error, OperationalError) else ""


def prepare(url: DatabaseUrl, head: str) -> None:
    """Make the tables, or bring them to `head`, in one transaction.

    Raises WorkspaceError when the server cannot be reached or refuses, and for tables of another program or of a newer
    Evaldesk.
    """
    if _revision(url) == head:
        return
    writer = PostgresqlServer(url).writing_engine()
    with telling(url), _dispose_after(writer), writer.begin() as connection:
        revision = _stored_revision(connection, url)
        if revision is None:
            _create(connection, head)
        elif revision != head:
            check_whole(url, revision)
            from evaldesk.store.upgrade import check_known, upgrade_on

            check_known(url, revision, head)
            upgrade_on(connection)


def make_tables(url: DatabaseUrl, revision: str) -> None:
    """Make the tables where there are none; they say that they have this revision. Raises WorkspaceError."""
    writer = PostgresqlServer(url).writing_engine()
    with telling(url), _dispose_after(writer), writer.begin() as connection:
        if _stored_revision(connection, url) is None:
            _create(connection, revision)


def has_tables(url: DatabaseUrl) -> bool:
    """Whether the database has our tables, of any version. Raises WorkspaceError as `prepare` does."""
    return _revision(url) is not None


def _revision(url: DatabaseUrl) -> str | None:
    reader = PostgresqlServer(url).reading_engine()
    with telling(url), _dispose_after(reader), reader.begin() as connection:
        return _stored_revision(connection, url)


def _stored_revision(connection: Connection, url: DatabaseUrl) -> str | None:
    tables = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    foreign = f"{url} holds tables of another program; create a database for Evaldesk alone"
    return revision_of(set(tables.scalars()), lambda query: connection.exec_driver_sql(query).scalar(), foreign)


def _create(connection: Connection, head: str) -> None:
    METADATA.create_all(connection, checkfirst=False)
    connection.exec_driver_sql(REVISIONS)
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (%s)", (head,))


@contextmanager
def telling(url: DatabaseUrl) -> Iterator[None]:
    """Raise WorkspaceError with the words of the server, and where its address comes from."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        raise WorkspaceError(f"{url}: {reason}; look at EVALDESK_STORE or [store] url") from error


@contextmanager
def _dispose_after(engine: Engine) -> Iterator[None]:
    try:
        yield
    finally:
        engine.dispose()


def _engine(url: DatabaseUrl, pool_size: int, set_up: Any = None, still: str = "") -> Engine:
    arguments = {
        "application_name": "evaldesk",
        "connect_timeout": str(CONNECT_TIMEOUT_S),
        "options": f"-c lock_timeout={LOCK_TIMEOUT_S}s -c client_encoding=UTF8{still}",
        **dict(url.options),
    }
    address = URL.create(
        "postgresql+psycopg",
        username=url.user or None,
        password=url.password or None,
        host=url.host or None,
        port=url.port,
        database=url.database,
    )
    try:
        engine = create_engine(
            address,
            poolclass=QueuePool,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=QUEUE_S,
            pool_pre_ping=True,
            connect_args=arguments,
            hide_parameters=True,
        )
    except ImportError as error:
        raise WorkspaceError(f"{url} needs psycopg; install it with: pip install 'evaldesk[postgres]'") from error

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        _accept_zero_bytes(connection)
        if set_up:
            set_up(connection)

    return engine


def _read_only(connection: Any) -> None:
    """Let each transaction of a connection see one state throughout, and write nothing."""
    from psycopg import IsolationLevel

    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True


def _accept_zero_bytes(connection: Any) -> None:
    """Store the character NUL, which PostgreSQL refuses in a text, as its picture."""
    from psycopg.types.string import StrDumper

    class _WithoutZero(StrDumper):  # type: ignore[misc]  # its types are not looked at: it may not be installed
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\u2400") if "\0" in obj else obj)

    connection.adapters.register_dumper(str, _WithoutZero)


MOST_FORGOTTEN = 500
_WORD_TABLES = (
    "CREATE TABLE IF NOT EXISTS search_seen (run_id BIGINT PRIMARY KEY, mark TEXT NOT NULL, up_to TIMESTAMPTZ)",
    "CREATE TABLE IF NOT EXISTS search_place (number BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
    "CREATE INDEX IF NOT EXISTS ix_search_place_words ON search_place USING GIN (words)",
)
_PUT_WORDS = (
    "INSERT INTO search_place VALUES (%s, array_to_tsvector(%s)) "
    "ON CONFLICT (number) DO UPDATE SET words = excluded.words"
)
_PUT_SEEN_RUN = (
    "INSERT INTO search_seen VALUES (%s, %s, %s) "
    "ON CONFLICT (run_id) DO UPDATE SET mark = excluded.mark, up_to = excluded.up_to"
)
_FORGET_WORDS = (
    "DELETE FROM search_place WHERE number IN "
    "(SELECT number FROM search_place WHERE number >= %s AND number < %s LIMIT %s)"
)


class WordTables:
    """The words of trials as `tsvector` in two tables of the same database, made when they are first needed."""

    refusal = ""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.reading() as connection:
            is_made = connection.exec_driver_sql("SELECT to_regclass('ix_search_place_words')").scalar() is not None
        if not is_made and database.is_read_only:
            self.refusal = "The texts of trials are searched once a person who may write has opened this database."
        elif not is_made:
            with database.writing() as connection:
                for statement in _WORD_TABLES:
                    connection.exec_driver_sql(statement)

    def indexed_runs(self) -> Mapping[int, Seen]:
        """The runs that are in the index."""
        rows = self._rows("SELECT run_id, mark, up_to FROM search_seen")
        return {run_id: Seen(mark, up_to) for run_id, mark, up_to in rows}

    def put(self, run_id: int, progress: Seen, words: Sequence[tuple[int, Collection[str]]]) -> None:
        """Replace the words of some places."""
        with self._database.writing() as connection:
            for number, each in words:
                connection.exec_driver_sql(_PUT_WORDS, (number, list(each)))
            connection.exec_driver_sql(_PUT_SEEN_RUN, (run_id, progress.mark, progress.up_to))

    def count(self, run_id: int) -> int:
        """The number of indexed places of a run."""
        question = "SELECT count(*) FROM search_place WHERE number >= %s AND number < %s"
        return int(self._rows(question, numbers_of(run_id))[0][0])

    def forget(self, run_id: int) -> bool:
        """Take some places of a run out, and at last the run; True while some are left."""
        with self._database.writing() as connection:
            is_left = connection.exec_driver_sql(_FORGET_WORDS, (*numbers_of(run_id), MOST_FORGOTTEN)).rowcount > 0
            if not is_left:
                connection.exec_driver_sql("DELETE FROM search_seen WHERE run_id = %s", (run_id,))
        return is_left

    def numbers_in(self, words: Sequence[str], spans: Sequence[tuple[int, int]], limit: int) -> Sequence[Sequence[int]]:
        """The places with all words in each span, from its first number to before its end; at most `limit` in each."""
        some = "SELECT number FROM search_place WHERE words @@ %s::tsquery AND number >= %s AND number < %s LIMIT %s"
        query = _ts_query(words)
        return [[number for (number,) in self._rows(some, (query, *span, limit))] for span in spans]

    def newest_in(self, words: Sequence[str], first: int, end: int, limit: int) -> Sequence[int]:
        """The same places, the last ones first."""
        some = (
            "SELECT number FROM search_place WHERE words @@ %s::tsquery AND number >= %s AND number < %s "
            "ORDER BY number DESC LIMIT %s"
        )
        return [number for (number,) in self._rows(some, (_ts_query(words), first, end, limit))]

    def numbers(self, words: Sequence[str], but: Collection[int], limit: int) -> Sequence[int]:
        """The newest places that hold all words."""
        outside = "".join(f" AND NOT number BETWEEN {first} AND {end - 1}" for first, end in map(numbers_of, but))
        newest = f"SELECT number FROM search_place WHERE words @@ %s::tsquery{outside} ORDER BY number DESC LIMIT %s"  # noqa: S608
        return [number for (number,) in self._rows(newest, (_ts_query(words), limit))]

    def size(self) -> int:
        """The bytes of the table with the words and of its indexes."""
        return int(self._rows("SELECT pg_total_relation_size('search_place')")[0][0])

    def _rows(self, question: str, values: tuple[Any, ...] = ()) -> Sequence[Any]:
        with self._database.reading() as connection:
            return connection.exec_driver_sql(question, values).all()


def _ts_query(words: Sequence[str]) -> str:
    """All words, the last one perhaps a beginning of a word."""
    *whole_words, prefix = words
    return " & ".join([*(f"'{word}'" for word in whole_words), f"'{prefix}'" + (":*" if len(prefix) > 1 else "")])
