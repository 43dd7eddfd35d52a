"""Chat sessions, their turns, and the cases made from them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary, Text
from sqlmodel import Field

from evaldesk.store.tables.base import METADATA, Row, UtcTime, cascade


class ChatSession(Row, table=True):
    """A chat session; its turns are rows of their own."""

    __tablename__ = "session"
    __table_args__ = (Index(None, "agent_id", "updated_at"), Index(None, "updated_at"))

    id: str = Field(primary_key=True)
    agent_id: str
    title: str
    n_turns: int = 0
    ended_in_error: bool = False
    created_at: datetime = Field(sa_type=UtcTime)
    updated_at: datetime = Field(sa_type=UtcTime)
    deleted_at: datetime | None = Field(default=None, sa_type=UtcTime)
    initial_state: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)


class SessionTurn(Row, table=True):
    """One turn of a chat session as a TurnRecord."""

    __tablename__ = "session_turn"
    __table_args__ = (cascade(["session_id"], "session", ["id"]),)

    session_id: str = Field(primary_key=True)
    turn_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class SessionCase(Row, table=True):
    """A case that was made from a chat session."""

    __tablename__ = "session_case"
    __table_args__ = (cascade(["session_id"], "session", ["id"]), {"sqlite_with_rowid": False})

    session_id: str = Field(primary_key=True)
    evalset_id: str = Field(primary_key=True)
    case_id: str = Field(primary_key=True)
    added_at: datetime = Field(sa_type=UtcTime)


SESSION = METADATA.tables["session"]
SESSION_TURN = METADATA.tables["session_turn"]
SESSION_CASE = METADATA.tables["session_case"]
