"""Events read off a growing list of chat messages, as agents that keep their own conversation leave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaldesk.agents.event_pump import SendEvent
from evaldesk.errors import FormatError
from evaldesk.model import Event, JsonValue
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, Place
from evaldesk.transcripts.messages.chat import read_chat_message
from evaldesk.transcripts.messages.turns import Message, TurnEvents
from evaldesk.wire import plain


@dataclass(slots=True)
class MessageEvents:
    """Reports each message once: the model's text, its tool calls, and their results.

    Messages of the system and the user begin a turn, and are not reported.
    """

    send: SendEvent
    author: str = ""
    _turn: TurnEvents = field(default_factory=TurnEvents)
    _ids: set[str] = field(default_factory=set)
    _n_reported: int = 0
    _texts: list[str] = field(default_factory=list)

    def skip(self, messages: Sequence[object]) -> None:
        """Take the messages that the turn begins with as told."""
        self._n_reported = len(messages)

    def answer(self, message: Mapping[str, Any]) -> None:
        """Tell a message of the model, as it comes; the list of messages may repeat it later."""
        found = self._read({"role": "assistant", **message})
        if found is not None:
            if found.text:
                self._texts.append(found.text)
            self._send_parts(found)

    def catch_up(self, messages: Sequence[object]) -> None:
        """Report the messages that were not reported yet."""
        fresh, self._n_reported = messages[self._n_reported :], max(self._n_reported, len(messages))
        for message in fresh:
            found = self._read(message)
            if found is None or found.speaker not in ("agent", "tool"):
                continue
            if found.text and found.text in self._texts:
                self._texts.remove(found.text)
                found = replace(found, text="", thought="")
            self._send_parts(replace(found, calls=tuple(call for call in found.calls if call.id not in self._ids)))

    def _read(self, message: object) -> Message | None:
        found = readable(plain(message))
        if isinstance(found, Event):
            self.send(found)
            return None
        return found

    def _send_parts(self, message: Message) -> None:
        self._ids.update(call.id for call in message.calls if call.id is not None)
        for event in events_of_message(self._turn, message, self.author):
            self.send(event)


def readable(raw: JsonValue) -> Message | Event:
    """The message that `raw` is; for one that cannot be read a remark: the work was done all the same."""
    try:
        return read_chat_message(Place(Document(raw)), raw, Notes())
    except FormatError as error:
        return left_out(error)


def left_out(error: FormatError) -> Event:
    """The remark on a message that cannot be read."""
    return Event("log", author="evaldesk", text=f"Left out: a message that cannot be read: {error}")


def events_of_message(turn: TurnEvents, message: Message, author: str) -> list[Event]:
    """The events of the message, with `author`."""
    n_events, turn.author = len(turn.events), author
    turn.add(message)
    return turn.events[n_events:]
