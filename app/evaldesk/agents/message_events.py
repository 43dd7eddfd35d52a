"""Events from the growing list of chat messages of agents that keep their own conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaldesk.agents.event_pump import SendEvent
from evaldesk.errors import FormatError
from evaldesk.model import Event, JsonValue
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.messages.chat import read_messages
from evaldesk.transcripts.messages.turns import Message, TurnEvents
from evaldesk.wire import plain_json


@dataclass(slots=True)
class MessageEvents:
    """Sends each message once: the model's text, its tool calls, and their results.

    Messages of the system and the user begin a turn, and are not sent.
    """

    send: SendEvent
    author: str = ""
    _turn: TurnEvents = field(default_factory=TurnEvents)
    _ids: set[str] = field(default_factory=set)
    _n_reported: int = 0
    _texts: list[str] = field(default_factory=list)

    def skip(self, messages: Sequence[object]) -> None:
        """Mark the first messages of the turn as sent."""
        self._n_reported = len(messages)

    def answer(self, message: Mapping[str, Any]) -> None:
        """Send a message of the model at once; the list of messages may repeat it later."""
        for parsed_message in self._read({"role": "assistant", **message}):
            if parsed_message.text:
                self._texts.append(parsed_message.text)
            self._send_parts(parsed_message)

    def catch_up(self, messages: Sequence[object]) -> None:
        """Send the new messages of the list."""
        new_messages, self._n_reported = messages[self._n_reported :], max(self._n_reported, len(messages))
        for message in new_messages:
            for parsed_message in self._read(message):
                if parsed_message.speaker in ("agent", "tool"):
                    self._send_parts(self._without_reported(parsed_message))

    def _without_reported(self, message: Message) -> Message:
        """The message without the text and calls that `answer` sent."""
        calls = tuple(call for call in message.calls if call.id not in self._ids)
        if message.text and message.text in self._texts:
            self._texts.remove(message.text)
            return replace(message, text="", thought="", calls=calls)
        return replace(message, calls=calls)

    def _read(self, message: object) -> Iterator[Message]:
        for item in parse_message(plain_json(message)):
            if isinstance(item, Message):
                yield item
            else:
                self.send(item)

    def _send_parts(self, message: Message) -> None:
        self._ids.update(call.id for call in message.calls if call.id is not None)
        for event in events_of_message(self._turn, message, self.author):
            self.send(event)


def parse_message(raw: JsonValue) -> tuple[Message | Event, ...]:
    """The messages in `raw`; for an unreadable message a log event, because its work is done already."""
    try:
        return read_messages(JsonPosition(Document(raw)), raw, Notes())
    except FormatError as error:
        return (unreadable_note(error),)


def unreadable_note(error: FormatError) -> Event:
    """The log event for an unreadable message."""
    return Event("log", author="evaldesk", text=f"Left out: a message that cannot be read: {error}")


def events_of_message(turn: TurnEvents, message: Message, author: str) -> list[Event]:
    """The events of the message, with `author`."""
    n_events, turn.author = len(turn.events), author
    turn.add(message)
    return turn.events[n_events:]
