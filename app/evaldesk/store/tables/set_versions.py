"""The tables of the versions of eval sets, and of the contents of their cases."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class SetVersion(Row, table=True):
    """An eval set as it was from `noted_at` on; rows of one set follow each other by `id`, whatever the clock says.

    `version` is its `set_version`, `origin` how it came to be. `revision` and `revision_author` are those of git where
    the file was committed as it is. The packed value is a `SetContent`; `n_added` and the others are against the row
    before.
    """

    __table_args__ = (Index(None, "evalset_id", "id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    evalset_id: str
    version: str
    noted_at: datetime = Field(sa_type=UtcTime)
    author: str
    origin: str
    note: str = Field(sa_type=Text)
    revision: str
    revision_author: str
    n_cases: int
    n_added: int
    n_changed: int
    n_removed: int
    n_renamed: int
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class CaseContent(Row, table=True):
    """The content of a case, once for all sets and versions that have it; `digest` is its `case_version`."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    digest: str = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


SET_VERSION = Row.metadata.tables["set_version"]
CASE_CONTENT = Row.metadata.tables["case_content"]
