"""The table of searches for decisive turns; their forks are runs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime, of_trial


class Blame(Row, table=True):
    """A search for the decisive turn of a trial. `plan` is a `BlamePlan` and `answer` an `Answer`, as JSON.

    `answer` is empty before there is one. `leased_until` is in seconds of the clock of the database.
    """

    __table_args__ = (
        of_trial(),
        Index(None, "run_id", "case_index", "trial_index"),
        Index(None, "batch_id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    batch_id: int
    run_id: int
    case_index: int
    trial_index: int
    status: str
    reason: str = Field(sa_type=Text)
    plan: str = Field(sa_type=Text)
    answer: str = Field(sa_type=Text)
    leased_until: float | None = None
    created_at: datetime = Field(sa_type=UtcTime)


BLAME = Row.metadata.tables["blame"]
