"""The tables of failures: the modes of the codebook, findings, trials that were read, and the steps to undo."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import OfTrial, Row, UtcTime, of_run, of_trial


class Mode(Row, table=True):
    """A failure mode; `folded` is its name without case, unique among modes in use."""

    __table_args__ = (Index(None, "folded"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    name: str
    folded: str
    definition: str = Field(default="", sa_type=Text)
    example_yes: str = Field(default="", sa_type=Text)
    example_no: str = Field(default="", sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    retired_at: datetime | None = Field(default=None, sa_type=UtcTime)
    merged_into: int | None = None
    fixed_in: int | None = None
    reopened_in: int | None = None


class Finding(Row, table=True):
    """A note on a trial, also a proposed one; `mode_id` is None while it has no name."""

    __table_args__ = (
        of_trial(),
        Index(None, "run_id", "case_index", "trial_index"),
        Index(None, "mode_id", "status", "run_id", "case_index", "trial_index"),
        Index(None, "run_id", "status", "author", "mode_id", "case_index", "trial_index"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    run_id: int
    case_index: int
    trial_index: int
    turn: int | None = None
    event: int | None = None
    start: int | None = None
    end: int | None = None
    quote: str = Field(default="", sa_type=Text)
    note: str = Field(default="", sa_type=Text)
    mode_id: int | None = None
    author: str
    source: str
    status: str
    signature: str = Field(default="", sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)


class Reading(OfTrial, table=True):
    """A trial that a person read, with findings or with nothing wrong."""

    __table_args__ = (of_trial(), {"sqlite_with_rowid": False})

    reader: str = Field(primary_key=True)
    is_clear: bool
    read_at: datetime = Field(sa_type=UtcTime)


# Nothing writes it since decision 500; without it a database of an earlier version would need a migration.
class ProposedMerge(Row, table=True):
    """Two modes that a model took for one in an earlier version; steps that rejected one can still be undone."""

    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012

    id: int | None = Field(default=None, primary_key=True)
    mode_id: int
    into_id: int
    reason: str = Field(sa_type=Text)
    model: str
    is_rejected: bool = False


class ModelQuestion(Row, table=True):
    """The cost of one question about the failures of a run; dollars are None where the price is not known."""

    __table_args__ = (of_run(), Index(None, "run_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    run_id: int
    model: str
    n_trials: int
    tokens: int
    cost: float | None = None
    asked_at: datetime = Field(sa_type=UtcTime)


class CodebookStep(Row, table=True):
    """A verb that can be undone: `before` has the rows as they were, `keys` which ones they are."""

    __table_args__ = (Index(None, "author", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    words: str = Field(sa_type=Text)
    author: str
    before: str = Field(sa_type=Text)
    taken_at: datetime = Field(sa_type=UtcTime)
    is_undone: bool = False


MODE = Row.metadata.tables["mode"]
FINDING = Row.metadata.tables["finding"]
READING = Row.metadata.tables["reading"]
PROPOSED_MERGE = Row.metadata.tables["proposed_merge"]
MODEL_QUESTION = Row.metadata.tables["model_question"]
CODEBOOK_STEP = Row.metadata.tables["codebook_step"]
