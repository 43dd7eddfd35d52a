"""The tables of the inbox: received spans, the conversations that they tell of, and draws of conversations to read."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime, cascade


class InboxSource(Row, table=True):
    """A sender of spans. `n_refused` requests came in a burst and were answered with 503; `n_removed` conversations
    went because the inbox was full or they were too old.
    """

    __table_args__ = ({"sqlite_with_rowid": False},)

    name: str = Field(primary_key=True)
    first_at: datetime = Field(sa_type=UtcTime)
    last_at: datetime = Field(sa_type=UtcTime)
    n_spans: int
    n_refused: int
    n_removed: int


class InboxSpans(Row, table=True):
    """Spans of one trace as one request brought them, masked: acknowledged once this row is committed.

    The packed value is a list of `ReceivedSpan`.
    """

    __table_args__ = (Index(None, "source", "trace_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    source: str
    trace_id: str
    n_spans: int
    received_at: datetime = Field(sa_type=UtcTime)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class InboxTrace(Row, table=True):
    """A trace and the group of traces that its sessions connect it to.

    Its stage is `new` while spans came that no conversation has yet, then `joined`, or `empty` where no span of the
    group is of an agent. It is `gone`, without spans, once its conversation was removed.
    """

    __table_args__ = (Index(None, "group_id"), Index(None, "stage", "last_at"), {"sqlite_with_rowid": False})

    source: str = Field(primary_key=True)
    trace_id: str = Field(primary_key=True)
    group_id: int
    n_spans: int
    last_at: datetime = Field(sa_type=UtcTime)
    stage: str


class InboxSession(Row, table=True):
    """The group of traces that name a session of a service."""

    __table_args__ = (Index(None, "group_id"), {"sqlite_with_rowid": False})

    source: str = Field(primary_key=True)
    service: str = Field(primary_key=True)
    session: str = Field(primary_key=True)
    group_id: int


class Conversation(Row, table=True):
    """A conversation, without its turns; `name` is its session, or its trace where that names none.

    `began_at` and `ended_at` are times of its spans, `last_at` that of the last received one. `tools` are the names of
    its tool calls in order, as JSON. `n_left_out` spans are beyond the bounds of one conversation.
    """

    __table_args__ = (
        Index(None, "is_eval", "began_at", "id"),
        Index(None, "is_eval", "has_error", "began_at"),
        Index(None, "is_eval", "release", "began_at"),
        Index(None, "state", "began_at"),
        Index(None, "ending", "last_at"),
        Index(None, "group_id"),
        Index(None, "twin_group"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    group_id: int
    source: str
    service: str
    name: str
    agent: str
    release: str
    began_at: datetime = Field(sa_type=UtcTime)
    ended_at: datetime = Field(sa_type=UtcTime)
    last_at: datetime = Field(sa_type=UtcTime)
    duration_ms: float
    n_turns: int
    n_calls: int
    n_spans: int
    n_left_out: int
    n_bytes: int
    tokens: int
    cost: float | None = None
    has_error: bool
    error: str = Field(sa_type=Text)
    first_words: str = Field(sa_type=Text)
    tools: str = Field(sa_type=Text)
    tags: str = Field(sa_type=Text)
    user_hash: str
    feedback: float | None = None
    twin_group: str
    state: str
    ending: str
    is_whole: bool
    is_eval: bool


class ConversationContent(Row, table=True):
    """The turns of a conversation; the packed value is a `TrialResult`."""

    __table_args__ = (cascade(["conversation_id"], "conversation", ["id"]),)

    conversation_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class ConversationMark(Row, table=True):
    """A tool or a tag of a conversation, to find it by."""

    __table_args__ = (
        cascade(["conversation_id"], "conversation", ["id"]),
        Index(None, "conversation_id"),
        {"sqlite_with_rowid": False},
    )

    kind: str = Field(primary_key=True)
    value: str = Field(primary_key=True)
    conversation_id: int = Field(primary_key=True)


class ConversationLabel(Row, table=True):
    """A person's verdict on a conversation."""

    __table_args__ = (cascade(["conversation_id"], "conversation", ["id"]), {"sqlite_with_rowid": False})

    conversation_id: int = Field(primary_key=True)
    labeller: str = Field(primary_key=True)
    verdict: str
    note: str = Field(sa_type=Text)
    labelled_at: datetime = Field(sa_type=UtcTime)


class ConversationScore(Row, table=True):
    """The score of a criterion for a conversation; `stratum` is the part of the traffic that it was taken from."""

    __table_args__ = (
        cascade(["conversation_id"], "conversation", ["id"]),
        Index(None, "scored_at", "conversation_id"),
        {"sqlite_with_rowid": False},
    )

    conversation_id: int = Field(primary_key=True)
    metric: str = Field(primary_key=True)
    value: float | None = None
    passed: bool | None = None
    reason: str = Field(sa_type=Text)
    stratum: str
    scored_at: datetime = Field(sa_type=UtcTime)


class InboxDraw(Row, table=True):
    """A seeded draw of conversations; `strata` are its parts with their sizes and drawn numbers, as JSON."""

    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int | None = Field(default=None, primary_key=True)
    filter: str = Field(sa_type=Text)
    strata: str = Field(sa_type=Text)
    seed: int
    author: str
    drawn_at: datetime = Field(sa_type=UtcTime)


class InboxDrawItem(Row, table=True):
    """A conversation of a draw, in the order of reading."""

    __table_args__ = (
        cascade(["inbox_draw_id"], "inbox_draw", ["id"]),
        cascade(["conversation_id"], "conversation", ["id"]),
        Index(None, "conversation_id"),
        {"sqlite_with_rowid": False},
    )

    inbox_draw_id: int = Field(primary_key=True)
    place: int = Field(primary_key=True)
    conversation_id: int
    stratum: str


SOURCE = Row.metadata.tables["inbox_source"]
SPANS = Row.metadata.tables["inbox_spans"]
TRACE = Row.metadata.tables["inbox_trace"]
SESSION = Row.metadata.tables["inbox_session"]
CONVERSATION = Row.metadata.tables["conversation"]
CONTENT = Row.metadata.tables["conversation_content"]
MARK = Row.metadata.tables["conversation_mark"]
CONVERSATION_LABEL = Row.metadata.tables["conversation_label"]
CONVERSATION_SCORE = Row.metadata.tables["conversation_score"]
DRAW = Row.metadata.tables["inbox_draw"]
DRAW_ITEM = Row.metadata.tables["inbox_draw_item"]

_HAS_FEEDBACK = CONVERSATION.c.feedback.is_not(None)
Index(
    "ix_conversation_feedback",
    *(CONVERSATION.c[name] for name in ("is_eval", "began_at", "id", "feedback")),
    sqlite_where=_HAS_FEEDBACK,
    postgresql_where=_HAS_FEEDBACK,
)
