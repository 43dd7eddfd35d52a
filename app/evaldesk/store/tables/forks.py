"""The tables of pinned turns: each content once, for all forks and cases that begin with it."""

from __future__ import annotations

from sqlalchemy import Index, LargeBinary
from sqlmodel import Field

from evaldesk.store.tables.columns import OfCase, Row, of_case


class PinnedTurn(Row, table=True):
    """A turn that trials begin with and do not play; `digest` is that of its JSON."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    digest: str = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class RunPinnedTurn(OfCase, table=True):
    """The turn number `turn_index`, from 0, of the trials of a case of a run, which is pinned."""

    __table_args__ = (of_case(), Index(None, "digest"), {"sqlite_with_rowid": False})

    turn_index: int = Field(primary_key=True)
    digest: str


PINNED_TURN = Row.metadata.tables["pinned_turn"]
RUN_PINNED_TURN = Row.metadata.tables["run_pinned_turn"]
