"""The tables of media: the bytes of each once, and the runs and sessions that use it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary
from sqlmodel import Field

from evaldesk.store.tables.columns import OfRun, Row, UtcTime, cascade, of_run


class Media(Row, table=True):
    """The bytes of an image, a sound or a file, by their SHA-256."""

    digest: str = Field(primary_key=True)
    kept_at: datetime = Field(sa_type=UtcTime)
    data: bytes = Field(sa_type=LargeBinary)


class RunMedia(OfRun, table=True):
    """The media of the cases and the trials of a run."""

    __table_args__ = (of_run(), Index(None, "digest"), {"sqlite_with_rowid": False})

    digest: str = Field(primary_key=True)


class SessionMedia(Row, table=True):
    """The media of a chat session."""

    __table_args__ = (cascade(["session_id"], "session", ["id"]), Index(None, "digest"), {"sqlite_with_rowid": False})

    session_id: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)


MEDIA = Row.metadata.tables["media"]
RUN_MEDIA = Row.metadata.tables["run_media"]
SESSION_MEDIA = Row.metadata.tables["session_media"]
