"""The table of presets: forms of a run that a person named."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class Preset(Row, table=True):
    """A filled form of a run, as its fields; `folded` is the name without case, unique for its agent."""

    __table_args__ = (Index(None, "agent_id", "folded"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    agent_id: str
    name: str
    folded: str
    fields: str = Field(sa_type=Text)
    saved_at: datetime = Field(sa_type=UtcTime)


PRESET = Row.metadata.tables["preset"]
