"""The database of a store: transactions that read and write on any engine, and the clock of its runs.

Readers and the writer have connections of their own. A reader cannot write, so no read transaction is ever upgraded,
which SQLite refuses at once, without the time-out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Executable

from evaldesk.errors import NotFoundError, WorkspaceError
from evaldesk.store.word_index import WordIndex

N_READERS = 8
QUEUE_S = 60
STEP_S = 0.05
"""The time that a step of a long work aims at: others wait for at most as long, and a busy machine may double it."""
SMALLEST_SHARE = 8
"""The smallest step is so many times smaller than the largest: a slow disk takes its time for each, however small."""


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """The bytes returned to the disk, and the bytes that stay in the file for later rows."""

    n_given_back: int
    n_kept: int


FIRST_TABLES = {"alembic_version", "run", "trial", "score", "session"}
REVISIONS = (
    "CREATE TABLE IF NOT EXISTS alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""As Alembic makes it, which reads from it where the database is."""


def revision_of(tables: Set[str], ask: Callable[[str], str | None], foreign: str) -> str | None:
    """The revision that tables say they have; None for an empty database.

    Raises WorkspaceError with the words `foreign` for those of another program, which may keep revisions of its own
    under the same name.
    """
    if tables >= FIRST_TABLES and (revision := ask("SELECT version_num FROM alembic_version")):
        return revision
    if tables - {"alembic_version"}:
        raise WorkspaceError(foreign)
    return None


COPYING = "copying "
"""The start of the revision of a database into which another is being copied; the rest tells that one."""


def is_copying(revision: str) -> bool:
    """Whether the tables have the revision of an unfinished copy."""
    return revision.startswith(COPYING)


def check_whole(place: object, revision: str) -> None:
    """Raise WorkspaceError for the revision of an unfinished copy, which looks like that of a newer Evaldesk."""
    if is_copying(revision):
        raise WorkspaceError(f"the copy into {place} is not finished; the same `evaldesk store copy` finishes it")


@dataclass(frozen=True, slots=True)
class Starter:
    """The person and the machine that start runs and sessions here; both empty where unknown."""

    name: str = ""
    host: str = ""


NOBODY = Starter()


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
        """Raise DamagedDatabaseError where the engine finds its own data damaged, WorkspaceError where it refuses.

        A retry after a refusal may succeed. An error of our SQL stays as it is.
        """

    def engine_version(self, connection: Connection) -> str:
        """The engine by its name and its version."""

    def check(self, connection: Connection) -> None:
        """Read all stored data. Raises DamagedDatabaseError when some is damaged."""

    def give_back(self, database: Database) -> FreedSpace:
        """Give the disk back the space of removed rows."""

    def word_index(self, database: Database) -> WordIndex:
        """Where the words of trials are found."""

    def try_hold(self, name: str) -> Callable[[], None] | None:
        """Hold what `name` stands for against all other processes of the database, on any machine; never waits.

        The hold ends with the returned function, or with the process. None while another one has it.
        """

    def write_log_back(self, writer: Engine) -> None:
        """Shorten the log of the database, where it has one of its own."""

    def before_closing(self, writer: Engine) -> None:
        """Leave the database in good order; never waits for another writer."""


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
        laps = self._laps.get(run_id, {})
        start_s = seconds if was is None else laps.get(was)
        if start_s is None:
            return None
        self._laps[run_id] = {lap_start: at for lap_start, at in laps.items() if lap_start == was} | {now: seconds}
        return (seconds - start_s) * 1000

    def ms_since(self, run_id: int, was: datetime | None) -> float:
        """Milliseconds since `was`, by the time of day where another process wrote it; 0 without such a moment."""
        if was is None:
            return 0.0
        start_s = self._laps.get(run_id, {}).get(was)
        if start_s is None:
            return max((self() - was) / timedelta(milliseconds=1), 0.0)
        return (self._seconds() - start_s) * 1000


P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Two engines on one database; both may be used from any thread.

    Every transaction raises LostDatabaseError when the database was deleted or replaced since it was opened, and
    DamagedDatabaseError when its bytes are found damaged.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._reader = dialect.reading_engine()
        self._writer = dialect.writing_engine()
        # Nobody waits within a pool: who waits there while it is closed is never woken.
        self._reading_turns = threading.BoundedSemaphore(N_READERS)
        self._writing_turn = threading.BoundedSemaphore()
        self._is_closed = False

    @property
    def name(self) -> str:
        """The place of the database, as messages name it."""
        return self.dialect.name

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be stored."""
        return self.dialect.is_read_only

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database throughout.

        Raises NotFoundError where a row is asked for by a number that none can have.
        """
        self.dialect.check_place()
        with self._turn(self._reading_turns), self.dialect.telling_damage(), self._reader.connect() as connection:
            try:
                with connection.begin():
                    yield connection
            except NotFoundError:  # it has read its row, and found none
                raise
            except OverflowError as error:
                if "SQLite INTEGER" not in str(error):  # of the code that reads
                    raise
                connection.invalidate()
                raise NotFoundError("no row has a number that large; the list of its kind shows the numbers") from error
            except BaseException:
                # Rows that are left, which the frames of the error hold, would keep this state for later transactions.
                connection.invalidate()
                raise
            finally:
                if self._is_closed:  # meanwhile: the pool to which it would go is gone
                    connection.invalidate()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its first moment; threads of this process queue for it.

        Raises WorkspaceError when the machine refuses: nothing is written, then, and it may be tried again.
        """
        self.dialect.check_place()
        if self.is_read_only:
            raise WorkspaceError(self._read_only_words)
        with self._turn(self._writing_turn), self.dialect.telling_damage(), self._writer.begin() as connection:
            yield connection
        self.dialect.check_place()

    @property
    def _read_only_words(self) -> str:
        if "://" in self.name:
            return f"{self.name} is read-only for its user: it is shown, and nothing can be stored in it"
        return (
            f"{Path(self.name).parent} is read-only: it is shown, and nothing can be stored in it; "
            "copy the workspace to a place that can be written"
        )

    @contextmanager
    def _turn(self, turns: threading.Semaphore) -> Iterator[None]:
        """A turn among the threads of this process, before the write lock of the database (decision 249).

        Raises WorkspaceError after `QUEUE_S`, or when it is closed.
        """
        if not turns.acquire(timeout=QUEUE_S):
            raise WorkspaceError(f"this process has kept the database busy for {QUEUE_S} s; try again later")
        try:
            if self._is_closed:
                raise WorkspaceError(f"{self.name} was closed meanwhile")
            yield
        finally:
            turns.release()

    def write_log_back(self) -> None:
        """Write the log into the file as far as readers permit, and shorten the file; nobody waits for it."""
        with self._turn(self._writing_turn), self.dialect.telling_damage():
            self.dialect.write_log_back(self._writer)

    def close(self) -> None:
        """Close every connection; committed data is durable already. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self.is_read_only and self._writing_turn.acquire(timeout=QUEUE_S):
            self.dialect.before_closing(self._writer)
            self._writing_turn.release()
        self._reader.dispose()
        self._writer.dispose()


class StepSize:
    """The size of the next transaction of a long work: `most`, or less while the last ones took long."""

    def __init__(self, most: int, seconds: Callable[[], float] = time.perf_counter) -> None:
        self.n = self._most = most
        self._seconds = seconds

    def share(self, most: int) -> int:
        """So much of another bound as the size is of its own."""
        return max(most * self.n // self._most, 1)

    @contextmanager
    def writing(self, database: Database) -> Iterator[Connection]:
        """A transaction whose time with the write lock sets the size of the next one."""
        with database.writing() as connection:
            start_s = self._seconds()
            yield connection
        took = self._seconds() - start_s
        fits = int(self.n * STEP_S / took) if took > 0 else self._most
        growth_limit = self.n + max(self.n // 4, 1)
        self.n = min(max(fits, self._most // SMALLEST_SHARE, 1), growth_limit, self._most)


class StorePart:
    """A store of some tables of a workspace."""

    def __init__(self, database: Database, clock: Clock, starter: Starter = NOBODY) -> None:
        self._database = database
        self._clock = clock
        self._starter = starter


def reading(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[StorePart, P], T]:
    """The method of a store that asks `query` in a reading transaction of its own."""
    return _in_transaction(query, Database.reading)


def writing(change: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[StorePart, P], T]:
    """The method of a store that makes a `change` in a writing transaction of its own."""
    return _in_transaction(change, Database.writing)


def _in_transaction(
    work: Callable[Concatenate[Connection, P], T], begin: Callable[[Database], AbstractContextManager[Connection]]
) -> Callable[Concatenate[StorePart, P], T]:
    @wraps(work)
    def method(store: StorePart, /, *args: P.args, **options: P.kwargs) -> T:
        with begin(store._database) as connection:
            return work(connection, *args, **options)

    return method


def execute_many(connection: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute `statement` once for each row; for no row not at all."""
    if rows:
        connection.execute(statement, rows)
