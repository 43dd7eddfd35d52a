"""Conversations of running agents as their traces bring them, with the labels, scores and draws of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from evaldesk.model.conversation_filter import State

Ending: TypeAlias = Literal["open", "closed", "cut_off"]
"""Open until no span has come for a while; then cut off where a span or an answer is missing."""


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it is stored: masked, with the attributes of its resource that count. Times are ms since 1970."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ms: float
    end_ms: float
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its turns: seen, not played. `name` is its session, or its trace where that names none.

    `duration_ms` is the time that the agent worked. `tools` are the names of its tool calls in order, `twin_group` is
    the same for equal first messages. `feedback` is below 0 for a bad one, None without any. `cost` is in dollars, None
    where unknown. `n_left_out` spans are beyond the bounds of one conversation, `n_bytes` is the space of it.
    """

    source: str
    service: str
    name: str
    agent: str
    release: str
    began_at: datetime
    ended_at: datetime
    last_at: datetime
    duration_ms: float
    n_turns: int
    n_calls: int
    n_spans: int
    tokens: int
    cost: float | None
    error: str
    first_words: str
    tools: tuple[str, ...]
    tags: tuple[str, ...]
    user_hash: str
    feedback: float | None
    twin_group: str
    is_whole: bool
    is_eval: bool
    has_error: bool = False
    n_left_out: int = 0
    n_bytes: int = 0
    state: State = "new"
    ending: Ending = "open"
    id: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last conversation of a page of a list; the next page begins after it."""

    began_at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Some conversations, newest first, and where the next ones begin; None at the end."""

    items: Sequence[Conversation]
    following: Cursor | None = None


@dataclass(frozen=True, slots=True)
class InboxSource:
    """A sender of spans. `n_refused` requests of a burst were answered with 503, `n_removed` conversations went by age
    or because the inbox was full.
    """

    name: str
    first_at: datetime
    last_at: datetime
    n_spans: int
    n_refused: int
    n_removed: int


@dataclass(frozen=True, slots=True)
class InboxLabel:
    """A person's verdict on a conversation."""

    labeller: str
    verdict: str
    note: str
    labelled_at: datetime


VERDICT = ""
"""The metric of the score that tells the verdict over all criteria, as of a trial."""


JUDGE_COST = "$"
"""The metric of the score whose value is the US dollars that judges of a conversation cost."""
ABOUT = (VERDICT, JUDGE_COST)
"""The metrics that are no criterion."""


@dataclass(frozen=True, slots=True)
class InboxScore:
    """The score of a criterion for a conversation; `value` is None where it has nothing to judge."""

    metric: str
    value: float | None
    passed: bool | None
    reason: str = ""
    stratum: str = ""


@dataclass(frozen=True, slots=True)
class ScoredConversation:
    """A conversation with a verdict, which is that of a trial with its scores."""

    id: int
    began_at: datetime
    scored_at: datetime
    release: str
    stratum: str
    passed: bool
    has_error: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A conversation that may be drawn."""

    id: int
    twin_group: str


@dataclass(frozen=True, slots=True)
class DrawStratum:
    """A part of a draw: its filter, the number of conversations in it, and how many of them were drawn.

    `weights` are, in the order of reading, how many conversations each drawn one stands for: its twins in this part.
    """

    name: str
    n: int
    n_drawn: int
    weights: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawItem:
    """A conversation of a draw, and the verdict of a reader on it; empty without one."""

    place: int
    conversation_id: int
    stratum: str
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Draw:
    """A seeded draw of conversations to read."""

    id: int
    filter: str
    strata: tuple[DrawStratum, ...]
    seed: int
    author: str
    drawn_at: datetime
    items: tuple[DrawItem, ...] = field(default=())
