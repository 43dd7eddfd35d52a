"""The tables, declared once for SQLite and PostgreSQL; queries use the constants behind them.

Columns are only for what is asked by SQL: a case, a transcript and a turn are one compressed JSON value each. Verdicts
of a case's trials are in its column `strip`: one character a trial, `.` to do, `p` `f` `e` `u` for the four verdicts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

import zstandard
from sqlalchemy import BigInteger, DateTime, Dialect, ForeignKeyConstraint, Index, LargeBinary, MetaData, Text
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from evaldesk.errors import WorkspaceError
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
    """The tables have a registry of their own: a user's SQLModel tables in the same process never meet them."""


def cascade(columns: list[str], parent: str, parent_columns: list[str]) -> ForeignKeyConstraint:
    """A foreign key whose rows go with the row they belong to."""
    return ForeignKeyConstraint(columns, [f"{parent}.{name}" for name in parent_columns], ondelete="CASCADE")


METADATA = Row.metadata


TO_DO = "."
LETTERS = {"passed": "p", "failed": "f", "errored": "e", "unscored": "u"}


class Run(Row, table=True):
    """A run with its totals. `ticked_at` is when `active_ms` was last brought up to date, None while it rests.

    `deleted_at` hides the run, since its deletion or until its import is finished.
    """

    __tablename__ = "run"
    __table_args__ = (
        Index(None, "status", "id"),
        Index(None, "agent_id", "id"),
        Index(None, "evalset_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    status: str
    agent_id: str
    evalset_id: str
    n: int
    n_cases: int
    n_passed: int = 0
    n_failed: int = 0
    n_errored: int = 0
    n_unscored: int = 0
    n_duplicates: int = 0
    n_unpriced: int = 0
    tokens_in: int = Field(default=0, sa_type=BigInteger)
    tokens_out: int = Field(default=0, sa_type=BigInteger)
    cost: float = 0.0
    duration_ms: float = 0.0
    active_ms: float = 0.0
    ticked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    created_at: datetime = Field(sa_type=UtcTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    deleted_at: datetime | None = Field(default=None, sa_type=UtcTime)
    driver: str = ""
    reason: str = Field(default="", sa_type=Text)
    note: str = Field(default="", sa_type=Text)
    config: str = Field(sa_type=Text)


class RunSource(Row, table=True):
    """A run that scores the stored trials of another again; the other may have been deleted since."""

    __tablename__ = "run_source"
    __table_args__ = (
        cascade(["run_id"], "run", ["id"]),
        Index(None, "source_id", "run_id"),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    source_id: int


class RunBaseline(Row, table=True):
    """The cases of the earlier run that a run is compared with, as they were when it started."""

    __tablename__ = "run_baseline"
    __table_args__ = (cascade(["run_id"], "run", ["id"]),)

    run_id: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class ImportedRun(Row, table=True):
    """A run that came in a file; `digest` is of its content in the file, to find it again."""

    __tablename__ = "imported_run"
    __table_args__ = (
        cascade(["run_id"], "run", ["id"]),
        Index(None, "digest", "run_id"),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    digest: str


class ImportRecord(Row, table=True):
    """An import of runs. `stage` is `storing`, `ready` (all rows are there, hidden), or `naming` (they are shown).

    `owner` names the process that imports. The eval set of the file is at `set_path`, `set_version` is of its bytes;
    both are empty without one.
    """

    __tablename__ = "import_record"
    __table_args__ = (Index(None, "status"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    status: str
    stage: str
    source: str
    owner: str
    set_id: str = ""
    set_path: str = ""
    set_version: str = ""
    n_total: int
    n_done: int = 0
    reason: str = Field(default="", sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)


class ImportRun(Row, table=True):
    """A run of an import; it is hidden until the whole import is there."""

    __tablename__ = "import_run"
    __table_args__ = (
        cascade(["run_id"], "run", ["id"]),
        Index(None, "import_id", "run_id"),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    import_id: int


class RunCase(Row, table=True):
    """A case of a run with the totals of its trials; `digest` is of the case's JSON, to tell an edited case."""

    __tablename__ = "run_case"
    __table_args__ = (cascade(["run_id"], "run", ["id"]), {"sqlite_with_rowid": False})

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    case_id: str
    digest: str
    strip: str = Field(sa_type=Text)
    n_passed: int = 0
    n_failed: int = 0
    n_errored: int = 0
    n_unscored: int = 0
    n_unpriced: int = 0
    tokens_in: int = Field(default=0, sa_type=BigInteger)
    tokens_out: int = Field(default=0, sa_type=BigInteger)
    cost: float = 0.0
    duration_ms: float = 0.0


class CaseSnapshot(Row, table=True):
    """The case as it was run; beside `run_case` so that a page of rows does not read it."""

    __tablename__ = "case_snapshot"
    __table_args__ = (cascade(["run_id", "case_index"], "run_case", ["run_id", "case_index"]),)

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class LastRun(Row, table=True):
    """The newest run in which a case of an eval set took part."""

    __tablename__ = "last_run"
    __table_args__ = (
        cascade(["run_id", "case_index"], "run_case", ["run_id", "case_index"]),
        Index(None, "run_id", "case_index"),
        {"sqlite_with_rowid": False},
    )

    evalset_id: str = Field(primary_key=True)
    case_id: str = Field(primary_key=True)
    run_id: int
    case_index: int


class CaseMetric(Row, table=True):
    """The totals of the scores of one metric in one case."""

    __tablename__ = "case_metric"
    __table_args__ = (
        cascade(["run_id", "case_index"], "run_case", ["run_id", "case_index"]),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    metric: str = Field(primary_key=True)
    n: int
    n_passed: int
    total: float
    total_squares: float
    low: float
    high: float


class ErrorGroupRow(Row, table=True):
    """Errors of a run that say the same; `message` without its numbers, `example` as the first one said it."""

    __tablename__ = "error_group"
    __table_args__ = (cascade(["run_id"], "run", ["id"]), {"sqlite_with_rowid": False})

    run_id: int = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    message: str = Field(primary_key=True)
    n: int
    case_index: int
    trial_index: int
    example: str = Field(sa_type=Text)


class Trial(Row, table=True):
    """A trial, planned from the start of the run. `verdict` is None while it is to do: planned, or cancelled."""

    __tablename__ = "trial"
    __table_args__ = (
        cascade(["run_id", "case_index"], "run_case", ["run_id", "case_index"]),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    trial_index: int = Field(primary_key=True)
    status: str
    attempt: int
    verdict: str | None = None
    n_calls: int = 0
    tokens_in: int = Field(default=0, sa_type=BigInteger)
    tokens_out: int = Field(default=0, sa_type=BigInteger)
    cost: float | None = None
    duration_ms: float = 0.0
    error_kind: str | None = None
    error_message: str | None = Field(default=None, sa_type=Text)
    recorded_at: datetime | None = Field(default=None, sa_type=UtcTime)


class TrialScore(Row, table=True):
    """The value of one metric for a whole trial; scores of turns are in the transcript."""

    __tablename__ = "score"
    __table_args__ = (
        cascade(["run_id", "case_index", "trial_index"], "trial", ["run_id", "case_index", "trial_index"]),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    trial_index: int = Field(primary_key=True)
    metric: str = Field(primary_key=True)
    value: float
    passed: bool | None = None


class TrialTranscript(Row, table=True):
    """A whole TrialResult, one for each attempt that ended; superseded attempts are kept as evidence."""

    __tablename__ = "transcript"
    __table_args__ = (
        cascade(["run_id", "case_index", "trial_index"], "trial", ["run_id", "case_index", "trial_index"]),
    )

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    trial_index: int = Field(primary_key=True)
    attempt: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class ChatSession(Row, table=True):
    """A chat session; its turns are rows of their own."""

    __tablename__ = "session"
    __table_args__ = (Index(None, "agent_id", "updated_at"), Index(None, "updated_at"))

    id: str = Field(primary_key=True)
    agent_id: str
    title: str
    n_turns: int = 0
    ended_in_error: bool = False
    created_at: datetime = Field(sa_type=UtcTime)
    updated_at: datetime = Field(sa_type=UtcTime)
    deleted_at: datetime | None = Field(default=None, sa_type=UtcTime)
    initial_state: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)


class SessionTurn(Row, table=True):
    """One turn of a chat session as a TurnRecord."""

    __tablename__ = "session_turn"
    __table_args__ = (cascade(["session_id"], "session", ["id"]),)

    session_id: str = Field(primary_key=True)
    turn_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class OpenTurn(Row, table=True):
    """The turn of a session that is being played, or that a dead process left; `owner` names who plays it."""

    __tablename__ = "open_turn"
    __table_args__ = (cascade(["session_id"], "session", ["id"]),)

    session_id: str = Field(primary_key=True)
    turn_index: int
    owner: str
    message: str = Field(sa_type=Text)
    model: str = ""
    asked_by: str
    started_at: datetime = Field(sa_type=UtcTime)


class OpenTurnEvents(Row, table=True):
    """Some events of an open turn, as they came; they go when the whole turn is stored."""

    __tablename__ = "open_turn_events"
    __table_args__ = (cascade(["session_id"], "open_turn", ["session_id"]),)

    session_id: str = Field(primary_key=True)
    batch_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class SessionCase(Row, table=True):
    """A case that was made from a chat session."""

    __tablename__ = "session_case"
    __table_args__ = (cascade(["session_id"], "session", ["id"]), {"sqlite_with_rowid": False})

    session_id: str = Field(primary_key=True)
    evalset_id: str = Field(primary_key=True)
    case_id: str = Field(primary_key=True)
    added_at: datetime = Field(sa_type=UtcTime)


class TrialLabel(Row, table=True):
    """A person's verdict or note on a trial, or on one turn of it: `turn` is -1 for the whole trial."""

    __tablename__ = "label"
    __table_args__ = (
        cascade(["run_id", "case_index", "trial_index"], "trial", ["run_id", "case_index", "trial_index"]),
        Index(None, "labelled_at"),
        {"sqlite_with_rowid": False},
    )

    run_id: int = Field(primary_key=True)
    case_index: int = Field(primary_key=True)
    trial_index: int = Field(primary_key=True)
    turn: int = Field(primary_key=True)
    labeller: str = Field(primary_key=True)
    verdict: str | None = None
    note: str = Field(default="", sa_type=Text)
    labelled_at: datetime = Field(sa_type=UtcTime)


RUN = METADATA.tables["run"]
RUN_BASELINE = METADATA.tables["run_baseline"]
RUN_SOURCE = METADATA.tables["run_source"]
VISIBLE = RUN.c.deleted_at.is_(None)
"""The one condition on runs that are shown: neither deleted nor part of an unfinished import."""

IMPORT_RECORD = METADATA.tables["import_record"]
IMPORT_RUN = METADATA.tables["import_run"]
IMPORTED_RUN = METADATA.tables["imported_run"]
RUN_CASE = METADATA.tables["run_case"]
CASE_SNAPSHOT = METADATA.tables["case_snapshot"]
LAST_RUN = METADATA.tables["last_run"]
CASE_METRIC = METADATA.tables["case_metric"]
ERROR_GROUP = METADATA.tables["error_group"]
TRIAL = METADATA.tables["trial"]
SCORE = METADATA.tables["score"]
TRANSCRIPT = METADATA.tables["transcript"]
SESSION = METADATA.tables["session"]
SESSION_TURN = METADATA.tables["session_turn"]
OPEN_TURN = METADATA.tables["open_turn"]
OPEN_TURN_EVENTS = METADATA.tables["open_turn_events"]
SESSION_CASE = METADATA.tables["session_case"]
LABEL = METADATA.tables["label"]


T = TypeVar("T")

PLAIN = 0
ZSTD = 1

MAX_UNPACKED = 256 * 1024 * 1024
"""More than any frame of a worker and any file that is imported."""

# A compressor must not be used by two threads at once, and making one costs as much as using it.
_of_thread = threading.local()


def pack(value: object) -> tuple[int, bytes]:
    """The codec and the bytes of a value of `evaldesk.model`."""
    data = to_json(value)
    packed = _compressor().compress(data)
    return (ZSTD, packed) if len(packed) < len(data) else (PLAIN, data)


def unpack(codec: int, data: bytes, kind: type[T]) -> T:
    """The value that `pack` was given. Raises WorkspaceError for a codec of a newer Evaldesk, and for a packed bomb."""
    if codec not in (PLAIN, ZSTD):
        raise WorkspaceError(f"the database holds a value packed with codec {codec}; a newer Evaldesk can read it")
    if codec == ZSTD and zstandard.frame_content_size(data) > MAX_UNPACKED:
        raise WorkspaceError(f"the database holds a value that unpacks to more than {MAX_UNPACKED // 2**20} MiB")
    return from_json(zstandard.ZstdDecompressor().decompress(data) if codec == ZSTD else data, kind)


def unpack_all(rows: Iterable[tuple[int, bytes]], kind: type[T]) -> tuple[T, ...]:
    """The values of many rows, in order."""
    return tuple(unpack(codec, data, kind) for codec, data in rows)


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_of_thread, "compressor"):
        _of_thread.compressor = zstandard.ZstdCompressor(level=3)
    compressor: zstandard.ZstdCompressor = _of_thread.compressor
    return compressor
