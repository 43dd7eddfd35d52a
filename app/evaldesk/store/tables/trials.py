"""Trials, their scores and their transcripts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, LargeBinary, Text
from sqlmodel import Field

from evaldesk.store.tables.base import METADATA, Row, UtcTime, cascade


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


TRIAL = METADATA.tables["trial"]
SCORE = METADATA.tables["score"]
TRANSCRIPT = METADATA.tables["transcript"]
