"""A turn as the chat shows it: its events folded into messages, tool cards, state changes and errors."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, overload

from evaldesk.desk.chat.running_turn import RunningTurn
from evaldesk.desk.chat.sessions import asked_of
from evaldesk.diff.state import state_diff
from evaldesk.errors import NotFoundError
from evaldesk.model import (
    AskedBy,
    Change,
    Decision,
    ErrorRecord,
    Event,
    JsonObject,
    JsonValue,
    ToolCall,
    TurnRecord,
    Usage,
    Waiting,
)
from evaldesk.model.decisions import Choice, decision_words
from evaldesk.model.json_text import json_line
from evaldesk.model.stored import OpenTurn, StoredSession
from evaldesk.pages.json_tree import Node, Trees, cut
from evaldesk.pages.media import MediaView, media_views, result_line, result_media, without_images
from evaldesk.pages.prose import Markdown, Prose
from evaldesk.wording.json_layout import laid_out
from evaldesk.wording.trial_text import call_text
from evaldesk.wording.words import duration_words, least_words

MAX_SHOWN = 20_000
ROLES = {"user": "simulated user", "judge": "judge"}
CallStatus: TypeAlias = Literal["running", "finished", "errored", "stopped"]
PartKind: TypeAlias = Literal["message", "call", "state", "log", "error", "decision"]


@dataclass(frozen=True, slots=True)
class TurnPart:
    """One thing in a turn, in the order in which it began. Which fields are set depends on `kind`.

    `prose` is the text of a message; while it is being written it stands as it is. `at` is the index of the event that
    holds the text or the result, which may be cut here, `begins_at` of the one in which the part began. `within` names
    the tool inside of which it happened. A call has an `author` where several agents act in the turn.
    """

    kind: PartKind
    text: str = ""
    prose: Prose = field(default_factory=lambda: Prose(""))
    author: str = ""
    call: ToolCall | None = None
    status: CallStatus = "finished"
    result: str = ""
    duration_ms: float | None = None
    changes: tuple[Change, ...] = ()
    error: ErrorRecord | None = None
    request: Waiting | None = None
    decision: Decision | None = None
    is_live: bool = False
    at: int = field(default=-1, compare=False)
    begins_at: int = field(default=-1, compare=False)
    is_cut: bool = field(default=False, compare=False)
    argument_tree: Node | None = field(default=None, compare=False)
    result_tree: Node | None = field(default=None, compare=False)
    media: tuple[MediaView, ...] = ()
    within: str = ""
    unread: Event | None = field(default=None, compare=False)
    """The event of a result that is not text yet; see `with_result`."""

    @property
    def line(self) -> str:
        """The call as one line of code."""
        if self.request:
            return call_line(self.request.tool, self.request.args)
        return call_line(self.call.name, self.call.args) if self.call else ""

    @property
    def decided(self) -> str:
        """The decision about it, as a word; empty while it waits."""
        return DECIDED[self.decision.decision] if self.decision else ""

    @property
    def asks_for(self) -> str:
        """The open request."""
        return asks_for(self.request) if self.request else ""

    @property
    def arguments(self) -> str:
        """The call's arguments, readable."""
        return cut(laid_out(self.call.args), MAX_SHOWN) if self.call else ""


DECIDED: Mapping[Choice, str] = {"approve": "approved", "deny": "denied", "answer": "answered"}


def asks_for(request: Waiting) -> str:
    """The request to a person, as words after its line."""
    return "asks for input, which the next message gives" if request.takes_message else "waits for a decision"


def call_line(name: str, args: JsonObject) -> str:
    """A call as one line of code."""
    return cut(call_text(name, args), 300)


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that waits for a person, on the form that decides about it."""

    request: Waiting
    line: str
    arguments: Node | None
    text: str
    question: Prose


@dataclass(frozen=True, slots=True)
class Deciding:
    """The decisions that the last turn of a session waits for; `mark` says which they are."""

    turn: int
    mark: str
    requests: tuple[Asked, ...]


def deciding(session: StoredSession) -> Deciding | None:
    """The open requests of the session; None without any."""
    last = session.turns[-1] if session.turns and not session.open_turn else None
    if last is None or not last.open_requests:
        return None
    markdown = Markdown(trees=Trees(longest=None))  # nobody approves what is not there to be read
    requests = tuple(
        Asked(
            each,
            call_line(each.tool, each.args),
            markdown.trees.tree(dict(each.args)) if each.args else None,
            laid_out(each.args) if each.args else "",
            markdown.prose("" if each.question is None else value_text(each.question)),
        )
        for each in last.open_requests
    )
    return Deciding(session.n_turns, asked_of(last), requests)


@dataclass(frozen=True, slots=True)
class PartGap:
    """Parts of a turn that a page leaves out, by their numbers."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn on the page. `number` counts from 1; `edits` are a person's changes of the state before it.

    `answer_at` is the index of the part that is the answer, or -1; a turn that `has_words` gave a message or an error.
    """

    number: int
    query: Prose
    parts: tuple[TurnPart | PartGap, ...]
    duration_ms: float
    answer_at: int
    has_words: bool
    stop_reason: str = ""
    is_live: bool = False
    edits: tuple[Change, ...] = ()
    agent: str = ""
    asked_by: AskedBy | None = None
    media: tuple[MediaView, ...] = ()

    @property
    def is_answering(self) -> bool:
        """Whether the end of the answer is being written."""
        return bool(self.parts) and isinstance(self.parts[-1], TurnPart) and self.parts[-1].is_live

    @property
    def is_errored(self) -> bool:
        """Whether an error ended the turn."""
        return any(isinstance(part, TurnPart) and part.kind == "error" for part in self.parts[-1:])

    @property
    def is_silent(self) -> bool:
        """Whether the turn is over without a word of the agent and without an error that says why."""
        return not self.is_live and not self.has_words


PARTS_OF_PAGE = 200
"""Messages and calls of a chat that come at once; those of earlier turns and in the middle of one come on scroll."""
LEAST_PARTS = 2
PARTS_OF_GAP = 100


def turn_views(
    turns: Sequence[TurnRecord], initial_state: JsonObject, agent: str, first: int = 0
) -> tuple[TurnView, ...]:
    """The finished turns of a session.

    Those of a long one begin with the index `first`: that turn tells the state before the next, and has no view.
    """
    before = [initial_state, *(turn.state_after for turn in turns)]
    markdown = Markdown()
    folded_turns = [FoldedEvents(turn.events) if index or not first else None for index, turn in enumerate(turns)]
    room, rooms = PARTS_OF_PAGE, list[int]()
    for folded in reversed(folded_turns):
        rooms.insert(0, max(room, LEAST_PARTS))
        room -= min(len(folded or ()), rooms[0])
    return tuple(
        _turn_view(
            folded,
            rooms[index],
            markdown,
            number=first + index + 1,
            query=markdown.prose(turn.query),
            duration_ms=turn.duration_ms,
            stop_reason=turn.stop_reason,
            edits=state_diff(before[index], turn.state_before),
            agent=agent,
            asked_by=turn.asked_by,
            media=media_views(turn.media),
        )
        for index, (turn, folded) in enumerate(zip(turns, folded_turns, strict=True))
        if folded is not None
    )


def _turn_view(folded: FoldedEvents, room: int, markdown: Markdown, **values: Any) -> TurnView:
    """The turn with as many of its parts as there is room for: those at its ends, which say what it began and gave."""
    n, n_first = len(folded), room // 3
    ranges = [range(n)] if n <= room else [range(n_first), range(n - room + n_first, n)]
    parts: list[TurnPart | PartGap] = []
    answer_at, answer_of_all = -1, folded.answer_at
    for each in ranges:
        if each.start > len(parts):
            parts.append(PartGap(len(parts) + 1, each.start))
        for at in each:
            answer_at = len(parts) if at == answer_of_all else answer_at
            parts.append(rendered_part(with_result(folded[at], MAX_SHOWN), markdown))
    has_words = not {"message", "error"}.isdisjoint(folded.kinds)
    return TurnView(parts=tuple(parts), answer_at=answer_at, has_words=has_words, **values)


def parts_of_gap(turn: TurnRecord, first: int, last: int) -> Sequence[TurnPart | PartGap]:
    """The first parts of a gap of numbers in a turn, and the rest of it. Raises NotFoundError where there is none."""
    folded, markdown = FoldedEvents(turn.events), Markdown()
    last = min(last, len(folded))
    if not 1 <= first <= last:
        raise NotFoundError(f"the turn has no messages and calls {first} to {last}")
    end = min(first + PARTS_OF_GAP - 1, last)
    parts = [rendered_part(with_result(part, MAX_SHOWN), markdown) for part in folded[first - 1 : end]]
    return [*parts, PartGap(end + 1, last)] if end < last else parts


def live_view(turn: RunningTurn, agent: str, session: StoredSession) -> TurnView:
    """A turn that is being played, after the finished ones of its session."""
    turns = session.turns[: turn.turn_index - session.first]
    before = turns[-1].state_after if turns else session.initial_state or turn.state
    return _turn_view(
        FoldedEvents(turn.events, is_live=True),
        PARTS_OF_PAGE,
        Markdown(),
        number=turn.turn_index + 1,
        query=Markdown().prose(turn.message),
        duration_ms=turn.elapsed_ms,
        is_live=True,
        edits=state_diff(before, turn.state),
        agent=agent,
        asked_by=turn.asked_by,
        media=media_views(turn.media),
    )


def open_view(turn: OpenTurn, agent: str) -> TurnView:
    """A turn that another process plays, as far as it is stored."""
    return _turn_view(
        FoldedEvents(turn.events, is_live=True),
        PARTS_OF_PAGE,
        Markdown(),
        number=turn.turn_index + 1,
        query=Markdown().prose(turn.message),
        duration_ms=turn.events[-1].at_ms if turn.events else 0.0,
        is_live=True,
        agent=agent,
        asked_by=turn.asked_by,
        media=media_views(turn.media),
    )


def changes_of(session: StoredSession) -> tuple[Change, ...]:
    """The changes of the state since the session began."""
    return state_diff(session.initial_state, session.state)


def parts_of(
    events: Sequence[Event],
    markdown: Markdown | None = None,
    *,
    is_live: bool = False,
    most: int = MAX_SHOWN,
    most_said: int | None = None,
) -> tuple[TurnPart, ...]:
    """Events as parts, rendered by `markdown`: see `folded_parts`."""
    markdown = markdown or Markdown()
    folded = folded_parts(events, is_live=is_live, most=most, most_said=most_said)
    return tuple(rendered_part(part, markdown) for part in folded)


def folded_parts(
    events: Sequence[Event], *, is_live: bool = False, most: int = MAX_SHOWN, most_said: int | None = None
) -> tuple[TurnPart, ...]:
    """Events as parts: a result joins its call, pieces of an answer join each other until the whole comes.

    Results and printed text are cut at `most` characters, messages at `most_said`. Nothing is rendered yet.
    """
    return tuple(with_result(part, most) for part in FoldedEvents(events, is_live, most, most_said))


def with_result(part: TurnPart, most: int) -> TurnPart:
    """The part with its result as text, cut at `most` characters."""
    event = part.unread
    if event is None:
        return part
    text = without_images(value_text(event.result), event.result)
    media = result_media(event.result)
    return replace(part, result=cut(text, most), is_cut=len(text) > most, media=media, unread=None)


def rendered_part(part: TurnPart, markdown: Markdown) -> TurnPart:
    """The part with its message as Markdown, its arguments and its result as trees. A text being written stays text."""
    if part.kind == "message" and not part.is_live:
        return replace(part, prose=markdown.prose(part.text))
    if not part.call:
        return part
    trees = markdown.trees
    result = None if part.is_cut or part.status == "running" else trees.tree(part.result)
    return replace(part, argument_tree=trees.tree(dict(part.call.args)), result_tree=result)


class FoldedEvents(Sequence[TurnPart]):
    """The parts of a turn, each made when it is taken, so that a page of a few does not pay for thousands.

    Parts have no result as text yet: see `with_result`. `without` are kinds that are left out.
    """

    def __init__(
        self,
        events: Sequence[Event],
        is_live: bool = False,
        most: int = MAX_SHOWN,
        most_said: int | None = None,
        without: Collection[PartKind] = (),
    ) -> None:
        self._events, self._is_live, self._most, self._most_said = events, is_live, most, most_said
        spans, self._live_text, self._live_author = _part_spans(events)
        self._part_spans = [span for span in spans if span.kind not in without] if without else spans
        self._has_live = is_live and self._live_text is not None
        begun = [events[span.begins_at] for span in self._part_spans if span.kind in ("message", "call")]
        self._has_agents = len({event.author for event in begun if event.author}) > 1

    @property
    def kinds(self) -> list[PartKind]:
        """The kind of each part."""
        return [*(span.kind for span in self._part_spans), *(("message",) if self._has_live else ())]

    @property
    def answer_at(self) -> int:
        """The index of the part that is the answer, or -1: the last message that is not inside of a tool."""
        if self._has_live:
            return len(self._part_spans)
        spans = self._part_spans
        messages = (at for at in range(len(spans) - 1, -1, -1) if spans[at].kind == "message")
        return next((at for at in messages if not self._events[spans[at].begins_at].within), -1)

    def __len__(self) -> int:
        return len(self._part_spans) + self._has_live

    @overload
    def __getitem__(self, index: int) -> TurnPart: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TurnPart]: ...

    def __getitem__(self, index: int | slice) -> TurnPart | Sequence[TurnPart]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index if index >= 0 else len(self) + index
        if not 0 <= at < len(self):
            raise IndexError(index)
        if at == len(self._part_spans):
            text = self._live_text or ""
            return TurnPart("message", text, Prose(text), self._live_author, is_live=True)
        return self._part(self._part_spans[at])

    def _part(self, span: _PartSpan) -> TurnPart:
        event = self._events[span.begins_at]
        end = self._events[span.ends_at] if span.ends_at >= 0 else None
        if span.kind == "message":
            text = cut(event.text, self._most_said)
            return TurnPart(
                "message",
                text,
                Prose(text),
                event.author,
                at=span.begins_at,
                begins_at=span.begins_at,
                is_cut=text != event.text,
                media=media_views(event.media),
                within=event.within,
            )
        if span.kind == "call":
            status: CallStatus = "running" if self._is_live else "stopped"
            return TurnPart(
                "call",
                author=event.author if self._has_agents and event.kind == "tool_call" else "",
                call=event.call,
                status=status if end is None else "errored" if end.is_error else "finished",
                duration_ms=end.duration_ms if end else None,
                at=span.ends_at,
                begins_at=span.begins_at,
                within=event.within,
                unread=end,
            )
        if span.kind == "state":
            return TurnPart("state", changes=event.changes)
        if span.kind == "decision":
            author, decision = (end.author, end.decision) if end else ("", None)
            return TurnPart("decision", request=event.waiting, decision=decision, author=author)
        if span.kind == "log":
            return TurnPart("log", cut(event.text.rstrip(), self._most))
        return TurnPart("error", error=event.error)


@dataclass(slots=True)
class _PartSpan:
    """The events in which a part begins and ends; -1 without an end of its own."""

    kind: PartKind
    begins_at: int
    ends_at: int = -1


def _part_spans(events: Sequence[Event]) -> tuple[list[_PartSpan], str | None, str]:
    """The spans of the parts, the text of an answer that is not whole yet, or None, and its author."""
    spans: list[_PartSpan] = []
    open_calls: defaultdict[tuple[str, str], deque[_PartSpan]] = defaultdict(deque)
    requests: defaultdict[str, list[_PartSpan]] = defaultdict(list)
    pieces: list[str] = []
    author = ""
    for at, event in enumerate(events):
        kind = event.kind
        if kind == "tool_call" and event.call:
            spans.append(span := _PartSpan("call", at))
            open_calls[_key(event.call)].append(span)
        elif kind == "tool_result" and event.call:
            spans += _end_first(open_calls[_key(event.call)], at)
        elif kind == "agent_message" and event.is_partial:
            pieces.append(event.text)
            author = event.author
        elif kind == "agent_message":
            pieces.clear()
            spans.append(_PartSpan("message", at))
        elif kind == "waiting" and event.waiting:
            spans.append(span := _PartSpan("decision", at))
            requests[event.waiting.id].append(span)
        elif kind == "decision" and event.waiting:
            for span in requests.pop(event.waiting.id, ()):
                span.ends_at = at
        elif kind == "state_delta" and event.changes:
            spans.append(_PartSpan("state", at))
        elif kind == "log" and event.text.strip():
            spans.append(_PartSpan("log", at))
        elif kind == "error" and event.error:
            spans.append(_PartSpan("error", at))
    return spans, "".join(pieces) if pieces else None, author


def _end_first(calls: deque[_PartSpan], at: int) -> Sequence[_PartSpan]:
    """End the first of the open calls; a result without one is a part of its own."""
    if not calls:
        return [_PartSpan("call", at, at)]
    calls.popleft().ends_at = at
    return ()


def value_text(value: JsonValue) -> str:
    """A value as a person reads it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else laid_out(value)


def gist(event: Event) -> str:
    """The content of an event, in one line."""
    if event.call:
        return event.call.name
    if event.waiting:
        return decision_words(event.decision, event.waiting.tool) if event.decision else event.waiting.tool
    if event.changes:
        return ", ".join(change.key for change in event.changes)
    if event.usage:
        return least_words(f"{event.usage.tokens_in:,} in, {event.usage.tokens_out:,} out", event.usage.is_least)
    text = event.error.message if event.error else event.text
    return _line(text)


def whole_text(event: Event) -> str:
    """The text or the value of an event, in lines; without either, its one-line summary."""
    if event.kind == "tool_result":
        return value_text(event.result)
    return event.text if event.text else event_text(event)


def token_words(usage: Usage) -> str:
    """`1,200 tokens in (1,000 cached), 80 out (64 reasoning)`."""
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    reasoning = f" ({usage.tokens_reasoning:,} reasoning)" if usage.tokens_reasoning else ""
    least = "at least " if usage.is_least else ""
    return f"{least}{usage.tokens_in:,} tokens in{cached}, {usage.tokens_out:,} out{reasoning}"


def event_text(event: Event) -> str:
    """All that an event says, as text."""
    if event.error:
        text = f"{event.error.kind}: {event.error.message}"
    elif event.usage:
        usage = event.usage
        who = "" if usage.role == "agent" else f"{ROLES[usage.role]}, "
        text = f"{who}{usage.model}: {token_words(usage)}"
        text += f", {duration_words(usage.duration_ms)}" if usage.duration_ms else ""
        text += ", answered from a recording or a cache" if usage.is_replayed else ""
        text += f", {usage.n_attempts} attempts" if usage.n_attempts > 1 else ""
        text += ", cut at the token limit" if usage.is_cut else ""
    elif event.kind == "tool_call" and event.call:
        text = f"{event.call.name} {json_line(event.call.args)}"
    elif event.kind == "tool_result":
        text = f"{event.call.name if event.call else ''} {'raised' if event.is_error else 'returned'} "
        text += result_line(event.result)
    elif event.waiting:
        line = f"{event.waiting.tool} {json_line(event.waiting.args)}"
        text = (
            f"{event.author}: {event.decision.decision} {line}"
            if event.decision
            else f"{line} {asks_for(event.waiting)}"
        )
    elif event.changes:
        values = ((each.key, json_line(each.after) if each.is_present else "gone") for each in event.changes)
        text = ", ".join(f"{key} = {value}" for key, value in values)
    else:
        text = f"{event.author}: {event.text}" if event.author else event.text
    return text


def _line(text: str, length: int = 160) -> str:
    words = " ".join(text[: 2 * length].split())
    return words if len(words) <= length else f"{words[:length]}…"


def _key(call: ToolCall) -> tuple[str, str]:
    """The common key of a call and its result: the id, or without ids the tool."""
    return (call.id, "") if call.id else ("", call.name)
