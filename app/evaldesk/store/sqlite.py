"""A SQLite file as the database: its connections, its refusals, and whether it is still the same file."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from sqlalchemy import URL, Connection, Engine, create_engine, event, select
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import LRUCache

from evaldesk.errors import DamagedDatabaseError, LostDatabaseError, WorkspaceError
from evaldesk.paths import is_read_only, make_private_file
from evaldesk.store.database import N_READERS, QUEUE_S, FreedSpace
from evaldesk.store.network_disk import network_disk
from evaldesk.store.search import numbers_of
from evaldesk.store.tables import METADATA
from evaldesk.store.tables.columns import unpack
from evaldesk.store.word_index import Seen, WordIndex

if TYPE_CHECKING:
    from evaldesk.store.database import Database

BUSY_TIMEOUT_MS = 5000
SYNCHRONOUS = "FULL"
N_TRIES = 6
INCREMENTAL = 2
"""The kind of `auto_vacuum` with which a file gives space back when it is asked to."""
LOG = "journal_mode=WAL"
"""Readers go on during a write; the file remembers it."""
SPACE = f"auto_vacuum={INCREMENTAL}"
"""A file that is about to be made gives space back later; it cannot be asked for when there are tables."""
MOST_PAGES = 250
"""So many pages are moved in one transaction: 1 MB. Fewer free pages are left for later rows."""
PAUSE_S = 0.1
"""After each transaction as long as it took, at most so long: SQLite tells no other writer that its turn has come."""

ROWS_ANALYSED = 1_000
"""About so many rows of each index are read for what later queries should know; the write lock is held meanwhile."""

_REFUSALS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk does not take it",
    sqlite3.SQLITE_READONLY: "the file may not be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_BUSY: "another process holds it",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}
"""A refusal of the machine, and not of our SQL: a retry may succeed."""

_DAMAGES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class SqliteFile:
    """The file at `path`; `check_place` looks whether it was deleted or replaced since then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.is_read_only = is_read_only(path)
        self._identity = _identity(path)

    def reading_engine(self) -> Engine:
        """Connections that cannot write."""
        where = reading_uri(self.path) if self.is_read_only else self.name
        return _engine(where, begin="BEGIN", pragmas=("foreign_keys=ON", "query_only=ON"), pool_size=N_READERS)

    def writing_engine(self) -> Engine:
        """One connection that writes durably."""
        return writing_engine(self.path)

    def check_place(self) -> None:
        """Raise LostDatabaseError when the path leads to another file; the numbers of a network disk may change."""
        identity = _identity(self.path)
        if identity == self._identity or (identity and network_disk(self.path.parent)):
            return
        what = "replaced" if identity else "deleted"
        raise LostDatabaseError(
            f"{self.path} was {what} while it was in use; trials that finish now are not stored. "
            "Put the file back, or start again"
        )

    @contextmanager
    def telling_damage(self) -> Iterator[None]:
        """Raise DamagedDatabaseError where the file is damaged, WorkspaceError where the machine refuses it."""
        try:
            with telling_damage(self.path):
                yield
        except OperationalError as error:
            reason = _REFUSALS.get(getattr(error.orig, "sqlite_errorcode", 0) & 0xFF)
            if not reason:
                raise
            raise WorkspaceError(f"{self.name}: {reason} ({error.orig}); nothing that was stored is lost") from error

    def engine_version(self, connection: Connection) -> str:
        """`SQLite 3.45.1`."""
        return f"SQLite {sqlite3.sqlite_version}"

    def check(self, connection: Connection) -> None:
        """Read every page and every packed value. Raises DamagedDatabaseError when one is damaged."""
        report = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if report != "ok":
            raise DamagedDatabaseError.at(self.path, " ".join(report.replace("*", "").split()))
        for table in METADATA.tables.values():
            for codec, data in connection.execute(select(table.c.codec, table.c.data)) if "codec" in table.c else ():
                unpack(codec, data, object)

    def give_back(self, database: Database) -> FreedSpace:
        """Shorten the file by its free pages, in steps that let others write.

        A database that an earlier version made cannot give space back without being written anew, which would keep
        others from writing for as long as that takes. Its free space is used by later rows.
        """
        with database.reading() as connection:
            page_size, n_free = _pragma(connection, "page_size"), _pragma(connection, "freelist_count")
            is_able = _pragma(connection, "auto_vacuum") == INCREMENTAL
        n_given_back = 0
        is_going = is_able and n_free >= MOST_PAGES
        while is_going:
            began = time.monotonic()
            with database.writing() as connection:
                n_moved = _shorten(connection)
                n_free = _pragma(connection, "freelist_count")
            n_given_back += n_moved
            is_going = n_free > 0 and n_moved > 0
            time.sleep(min(time.monotonic() - began, PAUSE_S))
        if n_given_back:
            database.write_log_back()  # only then the file is shorter
        return FreedSpace(n_given_back * page_size, n_free * page_size)

    def word_index(self, database: Database) -> WordIndex:
        """A file beside it."""
        return WordFile(self.path)

    def try_hold(self, name: str) -> Callable[[], None] | None:
        """Hold a lock on a file beside the database; the kernel ends it when the process dies (decision 510)."""
        place = self.path.with_name(f"{name}.lock")
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return partial(os.close, descriptor)

    def write_log_back(self, writer: Engine) -> None:
        """Write the log into the file as far as readers permit, and shorten the file; nobody waits for it."""
        ask_for(writer, "wal_checkpoint(PASSIVE)")

    def before_closing(self, writer: Engine) -> None:
        """Update SQLite's statistics for later queries, unless another writer holds the lock."""
        with suppress(sqlite3.Error):
            ask_for(writer, "busy_timeout=0", f"analysis_limit={ROWS_ANALYSED}", "optimize")


@contextmanager
def telling_damage(path: Path) -> Iterator[None]:
    """Raise DamagedDatabaseError where SQLite, or SQLAlchemy for it, finds that the file is damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, DatabaseError) as error:
        reason = error.orig if isinstance(error, DatabaseError) else error
        if getattr(reason, "sqlite_errorcode", 0) & 0xFF not in _DAMAGES:
            raise
        raise DamagedDatabaseError.at(path, reason) from error


def _identity(path: Path) -> tuple[int, int] | None:
    """The file behind a path; None for none."""
    try:
        file_stat = path.stat()
    except FileNotFoundError:
        return None
    # Linux writes on into a deleted file, so the path is compared: decision 052.
    return file_stat.st_dev, file_stat.st_ino


def reading_uri(path: Path) -> str:
    """The address of the file for a connection that only reads.

    Without a log no other process writes it, and SQLite needs no files beside it (`immutable`). With a log it reads
    that, too, by the index beside it.
    """
    log = path.with_name(f"{path.name}-wal")
    is_still = is_read_only(path) and not (log.exists() and log.stat().st_size)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"


def writing_engine(path: Path, *, foreign_keys: str = "ON") -> Engine:
    """One connection that writes durably: a commit has reached the disk when it returns.

    It takes the write lock as it begins: a transaction that read before could not wait for it (decision 249).
    """
    pragmas = (f"foreign_keys={foreign_keys}", f"synchronous={SYNCHRONOUS}")
    return _engine(str(path), begin="BEGIN IMMEDIATE", pragmas=pragmas, pool_size=1)


def ask_for(engine: Engine, *pragmas: str) -> None:
    """Ask SQLite for these outside of a transaction."""
    with closing(engine.raw_connection()) as connection:
        for pragma in pragmas:
            connection.cursor().execute(f"PRAGMA {pragma}").close()


class SharedDialect(SQLiteDialect_pysqlite):
    """Equals every other of its process, so that engines share the statements that are compiled."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharedDialect)

    def __hash__(self) -> int:
        return hash(SharedDialect)


registry.register("sqlite.shared", __name__, "SharedDialect")
_COMPILED: LRUCache[Any, Any] = LRUCache(1000)
"""The statements of this process: to compile one takes longer than to execute it."""


def _engine(where: str, *, begin: str, pragmas: tuple[str, ...], pool_size: int) -> Engine:
    address, _, query = where.partition("?") if where.startswith("file:") else (where, "", "")
    options = dict(parse_qsl(query)) | ({"uri": "true"} if query else {})
    engine = create_engine(
        URL.create("sqlite+shared", database=address, query=options),
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=QUEUE_S,
        execution_options={"compiled_cache": _COMPILED},
    )

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        # The driver's own transactions begin late and deferred; with None it leaves them to `start` below.
        connection.isolation_level = None
        # A view or trigger of a foreign file must not call functions with side effects: decision 052.
        for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", "trusted_schema=OFF", *pragmas):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        _begin(connection, begin)

    return engine


def _begin(connection: Connection, statement: str) -> None:
    """Begin; where others write a lot SQLite's waiting is not fair, and one time-out is no reason to give up."""
    for n_left in reversed(range(N_TRIES)):
        try:
            connection.exec_driver_sql(statement)
        except OperationalError as error:
            if "locked" not in str(error.orig):
                raise
            if not n_left:
                waited_s = N_TRIES * BUSY_TIMEOUT_MS // 1000
                raise WorkspaceError(f"another process has been writing for {waited_s} s; try again later") from error
        else:
            return


def _shorten(connection: Connection) -> int:
    """The number of pages by which one step shortens the file."""
    before = _pragma(connection, "page_count")
    for _ in range(min(MOST_PAGES, _pragma(connection, "freelist_count"))):
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")  # the driver ends a longer one after its first page
    return before - _pragma(connection, "page_count")


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


WORD_FILE = "search.db"
WORD_BUSY_S = 10.0
MOST_BEGUN = 40
"""Words that the last one may begin; FTS5 itself takes 10 times as long to look for all of them."""
MOST_FORGOTTEN = 500
_WORD_TABLES = (
    "CREATE TABLE IF NOT EXISTS seen (run_id INTEGER PRIMARY KEY, mark TEXT NOT NULL, up_to TEXT)",
    # Words are split already: without ASCII punctuation in them, the tokenizer `ascii` keeps each of them whole.
    "CREATE VIRTUAL TABLE IF NOT EXISTS place USING fts5(words, detail=none, columnsize=0, tokenize='ascii')",
)
_LAST_CHARACTER = chr(0x10FFFF)


class WordFile:
    """The words of trials in a file beside the database, by its full text search (FTS5).

    A file of its own: neither its size nor its writes touch the database. A damaged one is made again. (decision 140)
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(WORD_FILE)
        self._is_read_only = is_read_only(database)
        self.refusal = self._refusal()

    def indexed_runs(self) -> Mapping[int, Seen]:
        """The runs that are in the index."""
        with self._open() as connection:
            rows = connection.execute("SELECT run_id, mark, up_to FROM seen").fetchall()
        return {run_id: Seen(mark, datetime.fromisoformat(up_to) if up_to else None) for run_id, mark, up_to in rows}

    def put(self, run_id: int, progress: Seen, words: Sequence[tuple[int, Collection[str]]]) -> None:
        """Replace the words of some places."""
        rows = [(number, " ".join(each)) for number, each in words]
        up_to = progress.up_to.isoformat() if progress.up_to else None
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO place (rowid, words) VALUES (?, ?)", rows)
            connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (run_id, progress.mark, up_to))
            connection.execute("COMMIT")

    def count(self, run_id: int) -> int:
        """The number of indexed places of a run."""
        question = "SELECT count(*) FROM place_content WHERE id >= ? AND id < ?"
        with self._open() as connection:
            return int(connection.execute(question, numbers_of(run_id)).fetchone()[0])

    def forget(self, run_id: int) -> bool:
        """Take some places of a run out, and at last the run; True while some are left."""
        some = "SELECT id FROM place_content WHERE id >= ? AND id < ? LIMIT ?"
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            numbers = connection.execute(some, (*numbers_of(run_id), MOST_FORGOTTEN)).fetchall()
            connection.executemany("DELETE FROM place WHERE rowid = ?", numbers)
            if not numbers:
                connection.execute("DELETE FROM seen WHERE run_id = ?", (run_id,))
            connection.execute("COMMIT")
        return bool(numbers)

    def numbers_in(self, words: Sequence[str], spans: Sequence[tuple[int, int]], limit: int) -> Sequence[Sequence[int]]:
        """The places with all words in each span, from its first number to before its end; at most `limit` in each."""
        some = "SELECT rowid FROM place WHERE place MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid LIMIT ?"
        with self._open() as connection:
            match = _match(connection, words)
            rows = (connection.execute(some, (match, *span, limit)).fetchall() for span in spans)
            return [[number for (number,) in of_span] for of_span in rows]

    def newest_in(self, words: Sequence[str], first: int, end: int, limit: int) -> Sequence[int]:
        """The same places, the last ones first."""
        some = "SELECT rowid FROM place WHERE place MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        with self._open() as connection:
            match = _match(connection, words)
            return [number for (number,) in connection.execute(some, (match, first, end, limit))]

    def numbers(self, words: Sequence[str], but: Collection[int], limit: int) -> Sequence[int]:
        """The newest places that hold all words."""
        outside = "".join(f" AND NOT rowid BETWEEN {first} AND {end - 1}" for first, end in map(numbers_of, but))
        newest = f"SELECT rowid FROM place WHERE place MATCH ?{outside} ORDER BY rowid DESC LIMIT ?"  # noqa: S608
        with self._open() as connection:
            return [number for (number,) in connection.execute(newest, (_match(connection, words), limit))]

    def size(self) -> int:
        """The bytes of the file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def _refusal(self) -> str:
        if not has_fts5():
            return "The SQLite of this Python has no full text search (FTS5), so the texts of trials are not searched."
        if self._is_read_only and not self.path.is_file():
            return "This workspace is read-only and has no index, so the texts of trials are not searched."
        return ""

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file. Raises WorkspaceError; a file that is no index is removed, and is made again."""
        try:
            with closing(self._connect()) as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
            if is_damaged and not self._is_read_only:
                self._remove()
            raise WorkspaceError(f"{self.path}: {error}; it may be removed, and is made again") from error

    def _connect(self) -> sqlite3.Connection:
        if self._is_read_only:
            address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(address, timeout=WORD_BUSY_S, uri=True, isolation_level=None)
        else:
            make_private_file(self.path)
            connection = sqlite3.connect(self.path, timeout=WORD_BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema=OFF").close()
            if not self._is_read_only:
                for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", *_WORD_TABLES):
                    connection.execute(statement).close()
            if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'view'").fetchone():
                raise sqlite3.DatabaseError("it has a view, which may never end")
            connection.execute("CREATE VIRTUAL TABLE temp.word USING fts5vocab(main, place, row)").close()
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)


def _match(connection: sqlite3.Connection, words: Sequence[str]) -> str:
    """All words, the last one perhaps a beginning of a word."""
    *whole_words, prefix = words
    ends = [prefix]
    if len(prefix) > 1:
        terms = "SELECT term FROM temp.word WHERE term >= ? AND term < ? LIMIT ?"
        ends += [term for (term,) in connection.execute(terms, (prefix, prefix + _LAST_CHARACTER, MOST_BEGUN))]
    return " AND ".join([*map(_quote, whole_words), f"({' OR '.join(map(_quote, ends))})"])


def has_fts5() -> bool:
    """Whether the SQLite of this Python was built with full text search."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(_WORD_TABLES[1]).close()
        except sqlite3.OperationalError:
            return False
    return True


def _quote(word: str) -> str:
    """A word as FTS5 reads a string; words have no quotation marks in them."""
    return f'"{word}"'
