"""The table of views: addresses of the table of cases that a person named."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class TableView(Row, table=True):
    """Filters, order and columns as an address has them; `folded` is the name without case, unique for its set."""

    __table_args__ = (Index(None, "evalset_id", "folded"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    evalset_id: str
    name: str
    folded: str
    address: str = Field(sa_type=Text)
    saved_at: datetime = Field(sa_type=UtcTime)


TABLE_VIEW = Row.metadata.tables["table_view"]
