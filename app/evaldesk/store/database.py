"""The SQLite file: how it is opened, read and written, its permissions, and the clock of its runs.

Readers and the writer have connections of their own. A reader cannot write (`query_only`), so no read transaction
is ever upgraded, which SQLite refuses at once whatever the time-out. Every write begins with BEGIN IMMEDIATE.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import parse_qsl

from sqlalchemy import URL, Connection, Engine, Executable, Table, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool

from evaldesk.errors import DamagedDatabaseError, LostDatabaseError, WorkspaceError
from evaldesk.store.network_disk import network_disk


def utc_now() -> datetime:
    """This moment in UTC."""
    return datetime.now(UTC)


class Clock:
    """Tells this moment, and how long the runs of this process go on.

    That is not read off the time of day, which people set and which goes on while the machine sleeps: `seconds` says
    how much has passed. A run's time is written down again and again, together with the moment.
    """

    def __init__(self, now: Callable[[], datetime], seconds: Callable[[], float]) -> None:
        self._now = now
        self._seconds = seconds
        self._laps: dict[int, dict[datetime, float]] = {}

    def __call__(self) -> datetime:
        """This moment in UTC."""
        return self._now()

    def lap(self, run_id: int, was: datetime | None, now: datetime) -> float | None:
        """Milliseconds since `was`, when the run's time was last written down; the next lap begins `now`.

        0 for a run that begins and has no such moment; None where another process wrote it down. A lap that could not
        be written after all is asked for again, with the moment that still stands.
        """
        seconds = self._seconds()
        known = self._laps.get(run_id, {})
        begun = seconds if was is None else known.get(was)
        if begun is None:
            return None
        self._laps[run_id] = {moment: at for moment, at in known.items() if moment == was} | {now: seconds}
        return (seconds - begun) * 1000

    def ms_since(self, run_id: int, was: datetime | None) -> float:
        """Milliseconds since `was`, by the time of day where another process wrote it; 0 without such a moment."""
        if was is None:
            return 0.0
        begun = self._laps.get(run_id, {}).get(was)
        if begun is None:
            return max((self() - was) / timedelta(milliseconds=1), 0.0)
        return (self._seconds() - begun) * 1000


P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_MS = 5000
N_TRIES = 6
QUEUE_S = 60
N_READERS = 8

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


class Database:
    """Two engines on one SQLite file; both may be used from any thread.

    Every transaction raises LostDatabaseError when the file was deleted or replaced since it was opened, and
    DamagedDatabaseError when SQLite finds its bytes damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path)
        self._is_read_only = is_read_only(path)
        self._reader = reading_engine(path)
        self._writer = writing_engine(path)
        # Nobody waits within a pool: who waits there while it is closed is never woken.
        self._reading_turns = threading.BoundedSemaphore(N_READERS)
        self._writing_turn = threading.BoundedSemaphore()
        self._is_closed = False

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be stored."""
        return self._is_read_only

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database throughout."""
        self._check_identity()
        with self._turn(self._reading_turns), telling_damage(self.path), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its first moment; threads of this process queue for it.

        Raises WorkspaceError when the machine does not let it be written: nothing is, then, and it may be tried again.
        """
        self._check_identity()
        if self._is_read_only:
            raise WorkspaceError(
                f"{self.path.parent} is read-only: it is shown, and nothing can be stored in it; "
                "copy the workspace to a place that can be written"
            )
        try:
            with self._turn(self._writing_turn), telling_damage(self.path), self._writer.begin() as connection:
                yield connection
            self._check_identity()
        except OperationalError as error:
            reason = _REFUSALS.get(getattr(error.orig, "sqlite_errorcode", 0) & 0xFF)
            if reason is None:
                raise
            raise WorkspaceError(f"{self.path}: {reason} ({error.orig}); nothing that was stored is lost") from error

    @contextmanager
    def _turn(self, turns: threading.Semaphore) -> Iterator[None]:
        """A turn among the threads of this process. Raises WorkspaceError after `QUEUE_S`, or when it is closed."""
        if not turns.acquire(timeout=QUEUE_S):
            raise WorkspaceError(f"this process has been writing for {QUEUE_S} s; try again later")
        try:
            if self._is_closed:
                raise WorkspaceError(f"{self.path} was closed meanwhile")
            yield
        finally:
            turns.release()

    def _check_identity(self) -> None:
        """Raise LostDatabaseError when the path leads to another file; the numbers of a network disk may change."""
        found = _identity(self.path)
        if found == self._identity or (found and network_disk(self.path.parent)):
            return
        what = "replaced" if found else "deleted"
        raise LostDatabaseError(
            f"{self.path} was {what} while it was in use; trials that finish now are not stored. "
            "Put the file back, or start again"
        )

    def write_log_back(self) -> None:
        """Write the log into the file as far as readers permit, and shorten the file; nobody waits for it."""
        with (
            self._turn(self._writing_turn),
            telling_damage(self.path),
            closing(self._writer.raw_connection()) as connection,
        ):
            connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def close(self) -> None:
        """Close every connection; committed data is durable already. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_read_only and self._writing_turn.acquire(timeout=QUEUE_S):
            with suppress(sqlite3.Error), closing(self._writer.raw_connection()) as connection:
                # Good advice for later queries, not worth a wait for the present writer.
                connection.cursor().execute("PRAGMA busy_timeout=0").close()
                connection.cursor().execute("PRAGMA optimize").close()
            self._writing_turn.release()
        self._reader.dispose()
        self._writer.dispose()


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
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino


def is_read_only(path: Path) -> bool:
    """Whether nothing can be written beside the file: it is on a read-only mount, or in a folder of somebody else."""
    folder = path.parent
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY) or not os.access(folder, os.W_OK)
    except FileNotFoundError:
        return False


def reading_uri(path: Path) -> str:
    """The address of the file for a connection that only reads.

    Without a log no other process writes it, and SQLite needs no files beside it (`immutable`). With a log it reads
    that, too, by the index beside it.
    """
    log = path.with_name(f"{path.name}-wal")
    is_still = is_read_only(path) and not (log.exists() and log.stat().st_size)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"


class HasDatabase(Protocol):
    """A store."""

    _database: Database


def reading(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[HasDatabase, P], T]:
    """The method of a store that asks `query` in a reading transaction of its own."""

    @wraps(query)
    def method(store: HasDatabase, /, *args: P.args, **options: P.kwargs) -> T:
        with store._database.reading() as connection:
            return query(connection, *args, **options)

    return method


def reading_engine(path: Path) -> Engine:
    """Connections that cannot write."""
    where = reading_uri(path) if is_read_only(path) else str(path)
    return _engine(where, begin="BEGIN", pragmas=("foreign_keys=ON", "query_only=ON"), pool_size=N_READERS)


def writing_engine(path: Path, *, foreign_keys: str = "ON") -> Engine:
    """One connection that writes durably: a commit has reached the disk when it returns."""
    pragmas = (f"foreign_keys={foreign_keys}", "synchronous=FULL")
    return _engine(str(path), begin="BEGIN IMMEDIATE", pragmas=pragmas, pool_size=1)


def keep_a_log(engine: Engine) -> None:
    """Let readers go on during a write; the file remembers it."""
    with closing(engine.raw_connection()) as connection:
        connection.cursor().execute("PRAGMA journal_mode=WAL").close()


def upsert(dialect: str, table: Table) -> Any:
    """An INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`, in the words of `dialect`."""
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def execute_many(connection: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute `statement` once for each row; for no row not at all."""
    if rows:
        connection.execute(statement, rows)


def make_private_folder(folder: Path) -> None:
    """Create `folder` for the user alone, with any umask; one that exists is left as it is."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Create `path` empty, or keep it, readable for the user alone; SQLite gives its -wal and -shm the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)


def _engine(where: str, *, begin: str, pragmas: tuple[str, ...], pool_size: int) -> Engine:
    address, _, query = where.partition("?") if where.startswith("file:") else (where, "", "")
    url = URL.create("sqlite", database=address, query=dict(parse_qsl(query)) | ({"uri": "true"} if query else {}))
    engine = create_engine(url, poolclass=QueuePool, pool_size=pool_size, max_overflow=0, pool_timeout=QUEUE_S)

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        # The driver's own transactions begin late and deferred; with None it leaves them to `start` below.
        connection.isolation_level = None
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


def check_no_links(folder: Path) -> None:
    """Raise WorkspaceError when the folder is a link, or holds one: writes would land elsewhere.

    An entry that is neither a file nor a folder, as a named pipe, is refused as well: opening it may wait without end.
    """
    if folder.is_symlink():
        raise WorkspaceError(f"{folder} is a link, which is not followed; go where it leads to, or remove it")
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        odd = {entry.path: entry.is_symlink() for entry in entries if not _is_plain(entry)}
    for path, is_link in sorted(odd.items()):
        what = "is a link, which is not followed" if is_link else "is neither a file nor a folder"
        raise WorkspaceError(f"{path} {what}; remove it, or name another workspace")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
