"""The tables of chat sessions and their turns."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary, Text, false
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime, cascade


class Session(Row, table=True):
    """A chat session; its turns are rows of their own.

    A branch has those before turn `branch_turn`, from 0, of the session `branch_of`, and others from there on. `draft`
    is the JSON of instructions in place of the agent's own; `{}` without any.
    """

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
    started_by: str = Field(default="", sa_column_kwargs={"server_default": ""})
    branch_of: str = Field(default="", sa_column_kwargs={"server_default": ""})
    branch_turn: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    draft: str = Field(default="{}", sa_type=Text, sa_column_kwargs={"server_default": "{}"})


class SessionTurn(Row, table=True):
    """One turn of a chat session as a TurnRecord."""

    __table_args__ = (cascade(["session_id"], "session", ["id"]),)

    session_id: str = Field(primary_key=True)
    turn_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class TurnPrompts(Row, table=True):
    """How the models of a turn were asked, as Prompts; apart, because only its time line reads it."""

    __table_args__ = (cascade(["session_id"], "session", ["id"]),)

    session_id: str = Field(primary_key=True)
    turn_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class OpenTurn(Row, table=True):
    """The turn of a session that is being played, or that a dead process left; `owner` is the mark of its process.

    `media` is the JSON of the media of its message, without their bytes.
    """

    __table_args__ = (cascade(["session_id"], "session", ["id"]),)

    session_id: str = Field(primary_key=True)
    turn_index: int
    owner: str
    message: str = Field(sa_type=Text)
    model: str = ""
    asked_by: str
    started_at: datetime = Field(sa_type=UtcTime)
    leased_until: float | None = None
    is_stopping: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    media: str = Field(default="[]", sa_type=Text, sa_column_kwargs={"server_default": "[]"})


class OpenTurnEvents(Row, table=True):
    """Some events of an open turn, as they came; they go when the whole turn is stored."""

    __table_args__ = (cascade(["session_id"], "open_turn", ["session_id"]),)

    session_id: str = Field(primary_key=True)
    batch_index: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class SessionCase(Row, table=True):
    """A case that was made from a chat session."""

    __table_args__ = (cascade(["session_id"], "session", ["id"]), {"sqlite_with_rowid": False})

    session_id: str = Field(primary_key=True)
    evalset_id: str = Field(primary_key=True)
    case_id: str = Field(primary_key=True)
    added_at: datetime = Field(sa_type=UtcTime)


SESSION = Row.metadata.tables["session"]
SESSION_TURN = Row.metadata.tables["session_turn"]
TURN_PROMPTS = Row.metadata.tables["turn_prompts"]
OPEN_TURN = Row.metadata.tables["open_turn"]
OPEN_TURN_EVENTS = Row.metadata.tables["open_turn_events"]
SESSION_CASE = Row.metadata.tables["session_case"]
