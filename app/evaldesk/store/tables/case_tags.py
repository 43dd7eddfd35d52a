"""The table of the tags of cases that were changed at the desk."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class CaseTag(Row, table=True):
    """The newest change of a tag of a case at the desk: `author` added it, or took it away.

    Where it is not `is_in_file`, the file of the set is a data set that no step changes, and this row decides.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    evalset_id: str = Field(primary_key=True)
    case_id: str = Field(primary_key=True)
    tag: str = Field(primary_key=True)
    is_added: bool
    is_in_file: bool
    author: str
    changed_at: datetime = Field(sa_type=UtcTime)


CASE_TAG = Row.metadata.tables["case_tag"]
