"""A turn as the chat shows it: its events folded into messages, tool cards, state changes and errors."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from evaldesk.desk.chat.running_turn import RunningTurn
from evaldesk.desk.chat.sessions import asked_of
from evaldesk.diff.state import state_diff
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


@dataclass(frozen=True, slots=True)
class TurnPart:
    """One thing in a turn, in the order in which it began. Which fields are set depends on `kind`.

    `prose` is the text of a message; while it is being written it stands as it is. `at` is the index of the event that
    holds the text or the result, which may be cut here, `begins_at` of the one in which the part began. `within` names
    the tool inside of which it happened. A call has an `author` where several agents act in the turn.
    """

    kind: Literal["message", "call", "state", "log", "error", "decision"]
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
class TurnView:
    """A turn on the page. `number` counts from 1; `edits` are a person's changes of the state before it."""

    number: int
    query: Prose
    parts: tuple[TurnPart, ...]
    duration_ms: float
    stop_reason: str = ""
    is_live: bool = False
    edits: tuple[Change, ...] = ()
    agent: str = ""
    asked_by: AskedBy | None = None
    media: tuple[MediaView, ...] = ()

    @property
    def is_answering(self) -> bool:
        """Whether the end of the answer is being written."""
        return bool(self.parts) and self.parts[-1].is_live

    @property
    def answer_at(self) -> int:
        """The index of the part that is the answer, or -1."""
        messages = [at for at, part in enumerate(self.parts) if part.kind == "message" and not part.within]
        return messages[-1] if messages else -1

    @property
    def is_silent(self) -> bool:
        """Whether the turn is over without a word of the agent and without an error that says why."""
        return not self.is_live and not any(part.kind in {"message", "error"} for part in self.parts)


def turn_views(
    turns: Sequence[TurnRecord], initial_state: JsonObject, agent: str, first: int = 0
) -> tuple[TurnView, ...]:
    """The finished turns of a session.

    Those of a long one begin with the index `first`: that turn tells the state before the next, and has no view.
    """
    before = [initial_state, *(turn.state_after for turn in turns)]
    markdown = Markdown()
    return tuple(
        TurnView(
            number=first + index + 1,
            query=markdown.prose(turn.query),
            parts=parts_of(turn.events, markdown),
            duration_ms=turn.duration_ms,
            stop_reason=turn.stop_reason,
            edits=state_diff(before[index], turn.state_before),
            agent=agent,
            asked_by=turn.asked_by,
            media=media_views(turn.media),
        )
        for index, turn in enumerate(turns)
        if index or not first
    )


def live_view(turn: RunningTurn, agent: str, session: StoredSession) -> TurnView:
    """A turn that is being played, after the finished ones of its session."""
    turns = session.turns[: turn.turn_index - session.first]
    before = turns[-1].state_after if turns else session.initial_state or turn.state
    return TurnView(
        number=turn.turn_index + 1,
        query=Markdown().prose(turn.message),
        parts=parts_of(turn.events, is_live=True),
        duration_ms=turn.elapsed_ms,
        is_live=True,
        edits=state_diff(before, turn.state),
        agent=agent,
        asked_by=turn.asked_by,
        media=media_views(turn.media),
    )


def open_view(turn: OpenTurn, agent: str) -> TurnView:
    """A turn that another process plays, as far as it is stored."""
    parts = parts_of(turn.events, is_live=True)
    ms = turn.events[-1].at_ms if turn.events else 0.0
    query = Markdown().prose(turn.message)
    return TurnView(
        turn.turn_index + 1,
        query,
        parts,
        ms,
        is_live=True,
        agent=agent,
        asked_by=turn.asked_by,
        media=media_views(turn.media),
    )


def changes_of(session: StoredSession) -> tuple[Change, ...]:
    """The changes of the state since the session began."""
    return state_diff(session.initial_state, session.state)


def parts_of(
    events: Iterable[Event],
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
    events: Iterable[Event], *, is_live: bool = False, most: int = MAX_SHOWN, most_said: int | None = None
) -> tuple[TurnPart, ...]:
    """Events as parts: a result joins its call, pieces of an answer join each other until the whole comes.

    Results and printed text are cut at `most` characters, messages at `most_said`. Nothing is rendered yet.
    """
    folded = parts_without_results(events, is_live=is_live, most=most, most_said=most_said)
    return tuple(with_result(part, most) for part in folded)


def parts_without_results(
    events: Iterable[Event], *, is_live: bool = False, most: int = MAX_SHOWN, most_said: int | None = None
) -> tuple[TurnPart, ...]:
    """The same before results are text, for pages that draw some of thousands."""
    folding = _Folding(is_live, most, most_said)
    for at, event in enumerate(events):
        folding.add(at, event)
    return folding.finish()


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


@dataclass(slots=True)
class _Folding:
    is_live: bool
    most: int
    most_said: int | None
    parts: list[TurnPart] = field(default_factory=list)
    open_calls: defaultdict[tuple[str, str], deque[int]] = field(default_factory=lambda: defaultdict(deque))
    pieces: list[str] = field(default_factory=list)
    author: str = ""

    def add(self, at: int, event: Event) -> None:
        if event.kind == "agent_message" and event.is_partial:
            self.pieces.append(event.text)
            self.author = event.author
        elif event.kind == "agent_message":
            self.pieces.clear()
            self.parts.append(self._message(at, event))
        elif event.kind == "tool_call" and event.call:
            self.open_calls[_key(event.call)].append(len(self.parts))
            self.parts.append(
                TurnPart(
                    "call", author=event.author, call=event.call, status="running", begins_at=at, within=event.within
                )
            )
        elif event.kind == "tool_result" and event.call:
            self._end_call(at, event, event.call)
        elif event.kind == "state_delta" and event.changes:
            self.parts.append(TurnPart("state", changes=event.changes))
        elif event.kind == "waiting" and event.waiting:
            self.parts.append(TurnPart("decision", request=event.waiting))
        elif event.kind == "decision" and event.waiting:
            self._decide(event, event.waiting)
        elif event.kind == "log" and event.text.strip():
            self.parts.append(TurnPart("log", cut(event.text.rstrip(), self.most)))
        elif event.kind == "error" and event.error:
            self.parts.append(TurnPart("error", error=event.error))

    def finish(self) -> tuple[TurnPart, ...]:
        if self.is_live:
            text = "".join(self.pieces)
            live = [TurnPart("message", text, Prose(text), self.author, is_live=True)] if self.pieces else []
            return (*self._named(), *live)
        return tuple(replace(part, status="stopped") if part.status == "running" else part for part in self._named())

    def _named(self) -> list[TurnPart]:
        """The parts; a call names its agent only beside other agents."""
        agents = {part.author for part in self.parts if part.kind in ("message", "call") and part.author}
        if len(agents) > 1:
            return self.parts
        return [replace(part, author="") if part.kind == "call" and part.author else part for part in self.parts]

    def _decide(self, event: Event, request: Waiting) -> None:
        for index, part in enumerate(self.parts):
            if part.request and part.request.id == request.id and part.decision is None:
                self.parts[index] = replace(part, decision=event.decision, author=event.author)

    def _message(self, at: int, event: Event) -> TurnPart:
        text = cut(event.text, self.most_said)
        is_cut = text != event.text
        media = media_views(event.media)
        return TurnPart(
            "message",
            text,
            Prose(text),
            event.author,
            at=at,
            begins_at=at,
            is_cut=is_cut,
            media=media,
            within=event.within,
        )

    def _end_call(self, at: int, event: Event, call: ToolCall) -> None:
        status: CallStatus = "errored" if event.is_error else "finished"
        places = self.open_calls[_key(call)]
        part = self.parts[places[0]] if places else TurnPart("call", call=call, begins_at=at, within=event.within)
        result_part = replace(part, status=status, duration_ms=event.duration_ms, at=at, unread=event)
        if places:
            self.parts[places.popleft()] = result_part
        else:
            self.parts.append(result_part)


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
