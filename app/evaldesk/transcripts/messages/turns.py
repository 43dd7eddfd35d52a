"""From the messages of a recorded conversation to turns, for every recording tool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from evaldesk.model import ErrorRecord, Event, JsonValue, ToolCall, TurnRecord, Usage
from evaldesk.model.media import Media
from evaldesk.transcripts.recorded import cut_short, usage_event

# A farewell of a simulated user opens no turn: decision 026.
_FAREWELLS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")

Speaker: TypeAlias = Literal["system", "user", "agent", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the user's or the agent's words, calls of tools, or the result of a tool.

    `call_id` names the call that a tool answers; without it, it answers the oldest open one. `thought` is the agent's
    own thinking; `media` go with the text. `at_ms` counts on any clock. `usage` is an error where one of its
    numbers cannot be. A model call `within` a tool is a usage.
    """

    speaker: Speaker
    text: str = ""
    author: str = ""
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    result: JsonValue = None
    is_error: bool = False
    usage: Usage | ErrorRecord | None = None
    at_ms: float | None = None
    duration_ms: float | None = None
    within: str = ""
    media: tuple[Media, ...] = ()

    @property
    def is_farewell(self) -> bool:
        """Whether this is a simulated user's word for the end, as tau-bench and tau2 have it."""
        return self.speaker == "user" and any(word in self.text for word in _FAREWELLS)


QUERY_BREAK = "\n\n"
"""Between the messages of a user that one reply answers."""


def turns_of(
    messages: Iterable[Message], error: ErrorRecord | None = None, *, tells_results: bool = False
) -> tuple[TurnRecord, ...]:
    """The turns that the messages make up; each message of the user after a reply opens one, but not a last farewell.

    Messages of the agent before the user's first make a turn with an empty query. `error` ends the last turn. Where the
    source `tells_results` of all calls, a turn that ends with a call without one was interrupted.
    """
    turns: list[TurnEvents] = []
    first_events: list[Event] = []  # the message of a system before any other
    all_messages = list(messages)
    for index, message in enumerate(all_messages):
        if message.speaker == "system" and not turns:
            first_events.append(Event("log", author="system", text=message.text))
            continue
        is_last_word = bool(turns) and index == len(all_messages) - 1 and message.is_farewell
        if not turns or (message.speaker == "user" and turns[-1].is_answered and not is_last_word):
            turns.append(TurnEvents(first_events))
            first_events = []
        turns[-1].add(message, is_last_word=is_last_word)
    if error and not turns:
        turns.append(TurnEvents(first_events))
    if error:
        turns[-1].events.append(Event("error", error=error))
    records = tuple(turn.record() for turn in turns)
    return tuple(map(cut_short, records)) if tells_results else records


@dataclass(slots=True)
class TurnEvents:
    """The events of one turn while its messages come in; a result finds the call that it answers.

    They are of `author`, where that is known, and else of the author in the messages. `n_characters` is the length of
    the joined queries.
    """

    events: list[Event] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    n_characters: int = 0
    media: list[Media] = field(default_factory=list)
    open_calls: OrderedDict[str, ToolCall] = field(default_factory=OrderedDict)
    n_calls: int = 0
    is_answered: bool = False
    began_ms: float | None = None
    now_ms: float = 0.0
    author: str | None = None

    def add(self, message: Message, *, is_last_word: bool = False) -> None:
        """Take the next message; the last word of a simulated user is no query."""
        self._tick(message)
        if message.speaker == "user":
            if message.usage:
                self._keep(usage_event(message.usage))
            self._keep(Event("user_message", author="user", text=message.text))
            if not is_last_word:
                start = self.n_characters + len(QUERY_BREAK) if self.queries else 0
                self.queries.append(message.text)
                self.n_characters = start + len(message.text)
                self.media += [replace(item, at=item.at + start) for item in message.media]
        elif message.within:
            if message.usage:
                self._keep(replace(usage_event(message.usage), within=message.within))
        elif message.speaker == "agent":
            self._add_reply(message)
        elif message.speaker == "tool":
            self._add_result(message)
        else:
            self._keep(Event("log", author="system", text=message.text))

    def remark(self, author: str, text: str, at_ms: float | None = None) -> None:
        """Keep words that are neither the agent's nor the user's of this session."""
        self._tick(Message("system", at_ms=at_ms))
        self._keep(Event("log", author=author, text=text))

    def record(self) -> TurnRecord:
        """The turn up to now."""
        ends_in_error = self.events and self.events[-1].kind == "error"
        return TurnRecord(
            query=QUERY_BREAK.join(self.queries),
            events=tuple(self.events),
            duration_ms=self.now_ms,
            stop_reason="error" if ends_in_error else "answered",
            media=tuple(self.media),
        )

    def _add_reply(self, message: Message) -> None:
        self.is_answered = True
        if message.usage:
            self._keep(usage_event(message.usage))
        if message.thought:
            self._keep(Event("log", author="thought", text=message.thought))
        if message.text or message.media:
            self._keep(Event("agent_message", author=message.author, text=message.text, media=message.media))
        for call in message.calls:
            self.n_calls += 1
            # Calls without an id, or with one that is taken, are answered in their order.
            is_named = call.id is not None and call.id not in self.open_calls
            self.open_calls[call.id if is_named and call.id else f"\x00{self.n_calls}"] = call
            self._keep(Event("tool_call", author=message.author, call=call))

    def _add_result(self, message: Message) -> None:
        key = message.call_id if message.call_id in self.open_calls else next(iter(self.open_calls), None)
        call = self.open_calls.pop(key) if key is not None else ToolCall(message.author, id=message.call_id)
        self._keep(
            Event(
                "tool_result",
                author=message.author,
                call=call,
                result=message.result,
                is_error=message.is_error,
                duration_ms=message.duration_ms,
            )
        )

    def _tick(self, message: Message) -> None:
        if message.at_ms is None:
            return
        self.began_ms = message.at_ms if self.began_ms is None else self.began_ms
        self.now_ms = max(self.now_ms, round(message.at_ms - self.began_ms, 3))

    def _keep(self, event: Event) -> None:
        author = event.author if self.author is None or event.author == "thought" else self.author
        self.events.append(replace(event, at_ms=self.now_ms, author=author))
