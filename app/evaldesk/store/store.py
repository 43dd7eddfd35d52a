"""The database of a workspace: created or brought to the current schema, and opened."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from sqlalchemy import Connection, bindparam, create_mock_engine, delete, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import ExecutableDDLElement

from evaldesk.errors import BrokenRowError, WorkspaceError
from evaldesk.model import RunConfig
from evaldesk.model.evalset import numbered_keys
from evaldesk.paths import check_no_links, is_read_only, make_private_file, make_private_folder
from evaldesk.settings import DatabaseUrl
from evaldesk.store.blames import BlameStore
from evaldesk.store.case_tags import CaseTagStore
from evaldesk.store.client_proposals import ClientProposalStore
from evaldesk.store.database import (
    NOBODY,
    REVISIONS,
    Clock,
    Database,
    Dialect,
    FreedSpace,
    Starter,
    check_whole,
    execute_many,
    revision_of,
    utc_now,
)
from evaldesk.store.evalsets.joining import join_evalsets
from evaldesk.store.evalsets.lines import LineStore, note_moved
from evaldesk.store.experiments import ExperimentStore
from evaldesk.store.failures import FailureStore
from evaldesk.store.forks import ForkStore
from evaldesk.store.inbox.conversations import InboxStore
from evaldesk.store.inbox.draws import DrawStore
from evaldesk.store.inbox.spans import SpanStore
from evaldesk.store.labels import LabelStore
from evaldesk.store.media import MediaStore
from evaldesk.store.network_disk import check_disk
from evaldesk.store.presets import PresetStore
from evaldesk.store.proposals import ProposalStore
from evaldesk.store.queues import QueueStore
from evaldesk.store.runs import run_queries
from evaldesk.store.runs.imports import ImportStore
from evaldesk.store.runs.run_store import RunStore
from evaldesk.store.search import SearchStore
from evaldesk.store.sessions import SessionStore
from evaldesk.store.set_versions import SetVersionStore
from evaldesk.store.sqlite import LOG, SPACE, SqliteFile, ask_for, reading_uri, telling_damage, writing_engine
from evaldesk.store.tables import METADATA
from evaldesk.store.tables.case_tags import CASE_TAG
from evaldesk.store.tables.columns import DatabaseSeconds, pack
from evaldesk.store.tables.proposals import CASE_EDIT, PROPOSAL
from evaldesk.store.tables.runs import LAST_RUN, RUN, RUN_BASELINE
from evaldesk.store.tables.sessions import SESSION_CASE
from evaldesk.store.tables.set_versions import SET_VERSION
from evaldesk.store.views import ViewStore
from evaldesk.wire import from_json, to_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The database of a store: `ahead_s` is the clock of the database less that of this machine, in seconds."""

    name: str
    revision: str
    ahead_s: float


def _part(kind: Callable[[Database, Clock, Starter], T]) -> cached_property[T]:
    return cached_property(lambda store: kind(store._database, store._clock, store._starter))


class Store:
    """Runs, labels, failures and chat sessions of a workspace. Any thread may use it, and so may other processes."""

    def __init__(self, database: Database, clock: Clock, starter: Starter = NOBODY) -> None:
        self._database = database
        self._clock = clock
        self._starter = starter
        self.runs = RunStore(database, clock, starter)

    imports = _part(ImportStore)
    blames = _part(BlameStore)
    case_tags = _part(CaseTagStore)
    evalset_lines = _part(LineStore)
    experiments = _part(ExperimentStore)
    failures = _part(FailureStore)
    forks = _part(ForkStore)
    inbox = _part(InboxStore)
    inbox_draws = _part(DrawStore)
    inbox_spans = _part(SpanStore)
    labels = _part(LabelStore)
    media = _part(MediaStore)
    presets = _part(PresetStore)
    views = _part(ViewStore)
    client_proposals = _part(ClientProposalStore)
    proposals = _part(ProposalStore)
    queues = _part(QueueStore)
    search = _part(SearchStore)
    sessions = _part(SessionStore)
    set_versions = _part(SetVersionStore)

    @classmethod
    def open(
        cls,
        database: Path | DatabaseUrl,
        *,
        must_exist: bool = False,
        clock: Callable[[], datetime] = utc_now,
        seconds: Callable[[], float] = time.monotonic,
        starter: Starter = NOBODY,
    ) -> Store:
        """Open the SQLite file or the database of PostgreSQL, created or brought to the current schema if need be.

        `clock` tells the time of day, `seconds` how much of it has passed while the machine was awake. `starter` is
        noted with new runs and sessions. Raises WorkspaceError when it cannot be used, or `must_exist` and does not.
        """
        return cls(Database(_prepare(database, must_exist)), Clock(clock, seconds), starter)

    def move_evalset(self, old_id: str, new_id: str, path: Path) -> None:
        """Let runs, verdicts, sessions and open pages of an eval set follow its file to `path`, in one transaction."""
        with self._database.writing() as connection:
            move_evalset(connection, old_id, new_id, path)
            note_moved(connection, old_id, new_id, self._clock())

    def join_evalsets(self, home: Path) -> None:
        """Give what a server holds of the workspace `home` from before sets were known by their files its ids of now.

        The migration does so in an SQLite file; of a server it does not know whose runs are whose.
        """
        with self._database.writing() as connection:
            join_evalsets(connection, home, self._clock())

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be stored, as on a read-only mount."""
        return self._database.is_read_only

    def check(self) -> None:
        """Read every page of the database. Raises DamagedDatabaseError when one is damaged.

        Takes seconds for each gigabyte; other processes go on meanwhile.
        """
        with self._database.reading() as connection:
            self._database.dialect.check(connection)

    def broken_row_error(self, error: BaseException) -> BrokenRowError | None:
        """The sentence on the row behind an unexpected error; None where every row is sound."""
        from evaldesk.store.broken_rows import broken_row_error

        return broken_row_error(error, self._database)

    def engine(self) -> EngineFacts:
        """The engine, the revision of the tables, and the clock of the database beside that of this machine."""
        with self._database.reading() as connection:
            revision = str(connection.scalar(text("SELECT version_num FROM alembic_version")))
            words = self._database.dialect.engine_version(connection)
            before = time.time()
            seconds = float(connection.scalar(select(DatabaseSeconds())) or 0.0)
            return EngineFacts(words, revision, ahead_s=seconds - (before + time.time()) / 2)

    def give_back(self) -> FreedSpace:
        """Give the disk back the space of removed rows, in steps that let others write."""
        return self._database.dialect.give_back(self._database)

    def now(self) -> datetime:
        """This moment in UTC, by the clock that dates the rows."""
        return self._clock()

    def try_hold(self, name: str) -> Callable[[], None] | None:
        """Hold what `name` stands for against all other processes of the store, on any machine; never waits.

        The hold ends with the returned function, or with the process. None while another one has it.
        """
        return self._database.dialect.try_hold(name)

    def close(self) -> None:
        """Close the database; all that was written is durable already. May be called again."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _prepare(database: Path | DatabaseUrl, must_exist: bool) -> Dialect:
    if must_exist:
        check_exists(database)
    if isinstance(database, DatabaseUrl):
        from evaldesk.store import postgresql

        postgresql.prepare(database, HEAD)
        return postgresql.PostgresqlServer(database)
    if not is_read_only(database):
        check_disk(database.parent)
    prepare(database)
    return SqliteFile(database)


def move_evalset(connection: Connection, old_id: str, new_id: str, path: Path) -> None:
    """Give the runs with their baselines, the last verdicts and the sessions of one eval set its new id and `path`.

    Scores that the new id has already belong to another file that was at `path` before: its last verdicts go.
    """
    runs = connection.execute(select(RUN.c.id, RUN.c.config).where(RUN.c.evalset_id == old_id)).all()
    rows = []
    for run_id, config_json in runs:
        config = from_json(config_json, RunConfig)
        new_config = replace(config, evalset_id=new_id, evalset_path=str(path))
        rows.append({"of_run": run_id, "config": to_json(new_config).decode()})
        _rename_baseline(connection, run_id, config.evalset_name, new_config.evalset_name)
    change = update(RUN).where(RUN.c.id == bindparam("of_run")).values(evalset_id=new_id)
    execute_many(connection, change, rows)
    for table in (LAST_RUN, SESSION_CASE, CASE_TAG):
        connection.execute(delete(table).where(table.c.evalset_id == new_id))
        connection.execute(update(table).where(table.c.evalset_id == old_id).values(evalset_id=new_id))
    for table in (PROPOSAL, CASE_EDIT, SET_VERSION):
        connection.execute(update(table).where(table.c.evalset_id == old_id).values(evalset_id=new_id))


def _rename_baseline(connection: Connection, run_id: int, old_name: str, new_name: str) -> None:
    """Name the cases of a run's baseline as those of the run, or each of them would be gone and another one new."""
    baseline = run_queries.baseline(connection, run_id)
    if baseline is None or old_name == new_name:
        return
    names = [new_name if case.key.evalset == old_name else case.key.evalset for case in baseline.cases]
    keys = numbered_keys(
        (name, case.key.case_id, case.key.digest) for name, case in zip(names, baseline.cases, strict=True)
    )
    cases = tuple(replace(case, key=key) for case, key in zip(baseline.cases, keys, strict=True))
    codec, data = pack(replace(baseline, cases=cases))
    own = RUN_BASELINE.c.run_id == run_id
    connection.execute(update(RUN_BASELINE).where(own).values(codec=codec, data=data))


HEAD = "0054"


def prepare(path: Path) -> None:
    """Create or upgrade the database at `path`; nothing is written when it is current, foreign or newer.

    Raises WorkspaceError when there is a link in its folder, when it cannot be read or written, belongs to another
    program, or to a newer Evaldesk, or is being repaired; DamagedDatabaseError when its bytes are damaged.
    """
    check_not_in_repair(path)
    try:
        with telling_damage(path):
            check_no_links(path.parent)
            revision = stored_revision(path)
            if revision == HEAD:
                return
            check_whole(path, revision or "")
            if revision and is_read_only(path):
                other = f"{path} is read-only and has revision {revision} of another version, this one needs {HEAD}"
                raise WorkspaceError(f"{other}; copy the workspace to a place where it can be upgraded")
            make_private_folder(path.parent)
            with alone_in(path.parent):
                check_not_in_repair(path)
                _upgrade(path)
    except (sqlite3.Error, SQLAlchemyError, OSError) as error:
        raise WorkspaceError(_cannot_be_made(path, error)) from error


def _cannot_be_made(path: Path, error: Exception) -> str:
    """The reason why there is no database at the path: another object in its place first, then the system's error."""
    if path.is_dir():
        return f"{path} is a folder, where the file of the database should be; move it away, or name another workspace"
    if os.path.lexists(path.parent) and not path.parent.is_dir():
        place = f"{path.parent} is a file, where the folder of the database should be"
        return f"{place}; move it away, or name another workspace"
    if isinstance(error, OSError):
        return f"{path.parent} cannot be made: {error.strerror}; name another workspace"
    reason = getattr(error, "orig", None) or error
    return f"{path} cannot be opened or made: {reason}; name another workspace, or move the file away"


def check_exists(database: Path | DatabaseUrl) -> None:
    """Raise WorkspaceError when there is no database yet, or when it is being repaired."""
    if isinstance(database, Path):
        check_not_in_repair(database)
    if not is_made(database):
        raise WorkspaceError(f"{database} does not exist; start a desk or a run in this workspace first")


def is_made(database: Path | DatabaseUrl) -> bool:
    """Whether there is a database: the file, or tables of ours. Raises WorkspaceError where a server refuses."""
    if isinstance(database, Path):
        return database.is_file()
    from evaldesk.store import postgresql

    return postgresql.has_tables(database)


def repair_marker(path: Path) -> Path:
    """The file that is there while a database is repaired, also after the repair was killed."""
    return path.with_name(f"{path.name}.repair")


def check_not_in_repair(path: Path) -> None:
    """Raise WorkspaceError while the database is repaired, or after its repair was killed."""
    if repair_marker(path).exists():
        raise WorkspaceError(
            f"the repair of {path} is not finished; `evaldesk doctor --repair` in this workspace finishes it"
        )


def stored_revision(path: Path) -> str | None:
    """The revision that the file says it has; None for a file that is missing or empty.

    Raises WorkspaceError for the tables of another program.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    with closing(sqlite3.connect(reading_uri(path), uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema=OFF").close()
        kinds = dict(connection.execute("SELECT lower(name), type FROM sqlite_master WHERE type IN ('table', 'view')"))
        foreign = f"{path} is a database of another program; name another workspace, or move it away"
        if any(kinds.get(name) == "view" for name in METADATA.tables):  # which may never end
            raise WorkspaceError(foreign)
        tables = {name for name, kind in kinds.items() if kind == "table"}
        return revision_of(tables, lambda query: str((connection.execute(query).fetchone() or [""])[0]), foreign)


def _upgrade(path: Path) -> None:
    revision = stored_revision(path)
    if revision == HEAD:
        return
    if revision is None:
        create(path)
        return
    from evaldesk.store.upgrade import check_known, upgrade_copied

    check_known(path, revision, HEAD)
    upgrade_copied(path, HEAD)


def create(path: Path, revision: str = HEAD) -> None:
    """Make the tables as they are declared, which equals the result of the migrations: all of them, or none."""
    make_private_file(path)
    engine = writing_engine(path)
    try:
        ask_for(engine, SPACE, LOG)
        with engine.begin() as connection:
            for definition in (*_definitions(), REVISIONS):
                connection.exec_driver_sql(definition)
            connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (revision,))
    finally:
        engine.dispose()


@cache
def _definitions() -> Sequence[str]:
    """The SQL of all tables and indexes; SQLAlchemy takes longer to write it than SQLite to carry it out."""
    statements: list[str] = []

    def write(element: ExecutableDDLElement, *_: object, **__: object) -> None:
        statements.append(str(engine.dialect.ddl_compiler(engine.dialect, element)))

    engine = create_mock_engine("sqlite://", write)
    METADATA.create_all(engine, checkfirst=False)
    return statements


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes from making, upgrading or repairing the database in `folder`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # The folder is locked, since the database may not exist yet or be replaced (decision 079).
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
