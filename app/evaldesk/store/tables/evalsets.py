"""The table of the lines that lists show of eval set files."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class EvalsetLine(Row, table=True):
    """The list facts of one file, as it was at `read_at`; `place` is a digest of its path.

    `stamp` changes with the file. `line` is the JSON of an EvalSetFile without its place, or null for another file.
    Of a set that a desk renamed, `place` is a digest of its old id, and `stamp` has its new one.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    place: str = Field(primary_key=True)
    stamp: str
    read_at: datetime = Field(sa_type=UtcTime)
    line: str = Field(sa_type=Text)


EVALSET_LINE = Row.metadata.tables["evalset_line"]
