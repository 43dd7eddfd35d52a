"""Events read off a growing list of chat messages, as agents that keep their own conversation leave it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.agents.event_pump import Say
from evaldesk.model import Event, ToolCall
from evaldesk.wire import plain


@dataclass(slots=True)
class MessageEvents:
    """Tells each message once: what the model says, which tools it calls, and what they gave."""

    say: Say
    author: str = ""
    _calls: dict[str, ToolCall] = field(default_factory=dict)
    _n_told: int = 0
    _texts: list[str] = field(default_factory=list)

    def skip(self, messages: Sequence[object]) -> None:
        """Take the messages that the turn begins with as told."""
        self._n_told = len(messages)

    def answer(self, message: Mapping[str, Any]) -> None:
        """Tell a message of the model, as it comes; the list of messages may repeat it later."""
        text = content_text(message.get("content"))
        if text:
            self._texts.append(text)
            self.say(Event("agent_message", author=self.author, text=text))
        for requested in _requested(message):
            call = _call(requested)
            if call.id is not None:
                self._calls[call.id] = call
            self.say(Event("tool_call", author=self.author, call=call))

    def catch_up(self, messages: Sequence[object]) -> None:
        """Tell what of `messages` was not told yet."""
        fresh, self._n_told = messages[self._n_told :], max(self._n_told, len(messages))
        for message in fresh:
            if isinstance(message, Mapping):
                self._tell(message)

    def _tell(self, message: Mapping[str, Any]) -> None:
        role = message.get("role")
        if role == "tool":
            self._result(message)
        elif role == "assistant":
            told = content_text(message.get("content"))
            if told in self._texts:
                self._texts.remove(told)
                message = {**message, "content": None}
            fresh = [call for call in _requested(message) if call.get("id") not in self._calls]
            self.answer({**message, "tool_calls": fresh})
            if message.get("content"):
                self._texts.pop()

    def _result(self, message: Mapping[str, Any]) -> None:
        call_id = str(message.get("tool_call_id", ""))
        call = self._calls.get(call_id) or ToolCall(str(message.get("name") or "unknown"), {}, call_id)
        text = content_text(message.get("content"))
        is_error = text.startswith("Error:")
        self.say(Event("tool_result", author=self.author, call=call, result=parsed(text), is_error=is_error))


def content_text(content: object) -> str:
    """The text of a message's content; the parts of a list are joined by lines."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _requested(message: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]


def _call(requested: Mapping[str, Any]) -> ToolCall:
    function = requested.get("function")
    function = function if isinstance(function, Mapping) else {}
    raw = function.get("arguments", {})
    args = parsed(raw) if isinstance(raw, str) else plain(raw)
    call_id = None if requested.get("id") is None else str(requested["id"])
    if isinstance(args, dict):
        return ToolCall(str(function.get("name", "")), args, call_id)
    return ToolCall(str(function.get("name", "")), {}, call_id, {"arguments": str(raw)})


def parsed(text: str) -> Any:
    """What a tool gave: the value where its text is JSON, else the text."""
    try:
        return plain(json.loads(text or "{}")) if text else ""
    except ValueError:
        return text
