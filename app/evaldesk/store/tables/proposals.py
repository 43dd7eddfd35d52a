"""The tables of proposals of coding agents, and of the edits of cases."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class Proposal(Row, table=True):
    """A change that waits for a person, or was decided; `digest` is that of the draft without its reason, and
    `client` has the name of each client in a line of its own.
    `edited` is the content that a person accepted in place of `after`.

    It names its run by `played_in`, and stays when that run is removed.
    """

    __table_args__ = (Index(None, "status", "evalset_id"), Index(None, "digest"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    client: str
    status: str
    digest: str
    evalset_id: str
    case_id: str
    played_in: int | None = None
    case_index: int | None = None
    trial_index: int | None = None
    before: str = Field(sa_type=Text)
    after: str = Field(sa_type=Text)
    why: str = Field(sa_type=Text)
    n_times: int
    made_at: datetime = Field(sa_type=UtcTime)
    decided_at: datetime | None = Field(default=None, sa_type=UtcTime)
    decided_by: str
    undo: str
    reply: str = Field(default="", sa_type=Text, sa_column_kwargs={"server_default": ""})
    edited: str = Field(default="", sa_type=Text, sa_column_kwargs={"server_default": ""})


class CaseEdit(Row, table=True):
    """An edit of a case through a desk or a command; `version` is empty where it was deleted."""

    __table_args__ = (Index(None, "evalset_id", "case_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    evalset_id: str
    case_id: str
    version: str
    author: str
    edited_at: datetime = Field(sa_type=UtcTime)


PROPOSAL = Row.metadata.tables["proposal"]
CASE_EDIT = Row.metadata.tables["case_edit"]
