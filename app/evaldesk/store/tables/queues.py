"""The tables of review queues: which trials a queue has, and the steps of labelling that can be undone."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime, cascade, of_trial


class Queue(Row, table=True):
    """A review queue; `strata` are the kinds that it was drawn from, with their sizes and drawn numbers."""

    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int | None = Field(default=None, primary_key=True)
    strata: str = Field(sa_type=Text)
    is_blind: bool
    author: str
    created_at: datetime = Field(sa_type=UtcTime)


class QueueItem(Row, table=True):
    """A trial of a queue; its labels stand with the run `labelled_run`, which played it."""

    __table_args__ = (
        cascade(["queue_id"], "queue", ["id"]),
        of_trial(),
        Index(None, "run_id", "case_index", "trial_index"),
        {"sqlite_with_rowid": False},
    )

    queue_id: int = Field(primary_key=True)
    place: int = Field(primary_key=True)
    run_id: int
    case_index: int
    trial_index: int
    labelled_run: int
    kind: str


class LabelStep(Row, table=True):
    """Labels that a person gave at once: `before` has the labels as they were, None where there was none."""

    __table_args__ = (
        cascade(["queue_id"], "queue", ["id"]),
        Index(None, "queue_id", "labeller", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    queue_id: int
    labeller: str
    n: int
    is_blind: bool
    before: str = Field(sa_type=Text)
    taken_at: datetime = Field(sa_type=UtcTime)
    is_undone: bool = False


QUEUE = Row.metadata.tables["queue"]
QUEUE_ITEM = Row.metadata.tables["queue_item"]
LABEL_STEP = Row.metadata.tables["label_step"]
