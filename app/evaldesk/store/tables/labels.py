"""Labels of trials."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.base import METADATA, Row, UtcTime, cascade


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


LABEL = METADATA.tables["label"]
