"""Runs and their cases, with totals.

Verdicts of a case's trials are its `strip`: one character a trial, `.` to do, `p` `f` `e` `u` for the four verdicts.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, LargeBinary, Text
from sqlmodel import Field

from evaldesk.store.tables.base import METADATA, Row, UtcTime, cascade

TO_DO = "."
STRIP_OF = {"passed": "p", "failed": "f", "errored": "e", "unscored": "u"}


class Run(Row, table=True):
    """A run with its totals. `ticked_at` is when `active_ms` was last brought up to date, None while it rests."""

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


RUN = METADATA.tables["run"]
RUN_BASELINE = METADATA.tables["run_baseline"]
RUN_SOURCE = METADATA.tables["run_source"]
RUN_CASE = METADATA.tables["run_case"]
CASE_SNAPSHOT = METADATA.tables["case_snapshot"]
LAST_RUN = METADATA.tables["last_run"]
CASE_METRIC = METADATA.tables["case_metric"]
ERROR_GROUP = METADATA.tables["error_group"]
