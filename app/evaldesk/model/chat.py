"""The turns of a session as the chat messages a model is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from evaldesk.model.evalset import JsonObject, JsonValue, ToolCall
from evaldesk.model.json_text import json_or_text
from evaldesk.model.media import Media, split
from evaldesk.model.transcript import Event, TurnRecord

NO_RESULT = "no result: the turn was stopped"


def chat_messages(turns: Iterable[TurnRecord]) -> list[JsonObject]:
    """User messages, the agent's messages with their tool calls, tool results and answers, in OpenAI's shape."""
    messages: list[JsonObject] = []
    for number, turn in enumerate(turns, start=1):
        messages.extend(user_messages(turn.query, turn.media))
        # Without model calls inside a tool, each of which would begin a reply.
        for reply in _replies(event for event in turn.events if not event.within):
            messages.extend(reply.messages(f"call_{number}"))
    return messages


def user_messages(text: str, media: Sequence[Media] = ()) -> list[JsonObject]:
    """The message of the user as a list; empty where there is none, as in a row of Osmosis with metadata alone."""
    return [user_message(text, media)] if text or media else []


def user_message(text: str, media: Sequence[Media] = ()) -> JsonObject:
    """A message of the user: text, or a list of parts where media go with it.

    (OpenAI chat completions: image_url, input_audio, file; a video is a file, as LiteLLM has it)
    """
    if not media:
        return {"role": "user", "content": text}
    return {"role": "user", "content": [_content_part(part) for part in split(text, media)]}


def _content_part(part: str | Media) -> JsonValue:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    url = part.uri or f"data:{part.mime_type};base64,{part.data}"
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if part.kind == "audio" and part.data:
        form = part.mime_type.partition("/")[2]
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _AUDIO.get(form, form)}}
    file: dict[str, JsonValue] = {"file_id": part.uri} if part.uri else {"file_data": url}
    name_part: dict[str, JsonValue] = {"filename": part.name} if part.name else {}
    return {"type": "file", "file": {**file, **name_part}}


_AUDIO = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
"""The names of formats of sound that differ from the ends of their MIME types."""


def assistant_message(text: str, calls: Sequence[tuple[str, str, str]]) -> JsonObject:
    """A message of the agent; `calls` are (id, name, arguments as JSON text)."""
    message: dict[str, object] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    return message  # type: ignore[return-value]


def tool_message(call_id: str, text: str) -> JsonObject:
    """The result of a tool for the model."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@dataclass(slots=True)
class _Reply:
    """One reply of a model: its text, its calls, and its facts."""

    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def messages(self, prefix: str) -> list[JsonObject]:
        if not (self.texts or self.calls):
            return []
        ids = [call.id or f"{prefix}_{index}" for index, call in enumerate(self.calls)]
        calls = [(call_id, call.name, _arguments(call)) for call_id, call in zip(ids, self.calls, strict=True)]
        results = [*self.results, *[NO_RESULT] * len(ids)][: len(ids)]
        tool_messages = [tool_message(call_id, text) for call_id, text in zip(ids, results, strict=True)]
        return [assistant_message("\n\n".join(self.texts), calls), *tool_messages]


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.args, ensure_ascii=False, separators=(",", ":"))


def _replies(events: Iterable[Event]) -> list[_Reply]:
    """A reply begins at a usage event, or at a message that follows tool calls where usage was not recorded."""
    replies = [_Reply()]
    for event in events:
        if event.kind == "usage" or (event.kind == "agent_message" and replies[-1].calls and not event.is_partial):
            replies.append(_Reply())
        if event.kind == "agent_message" and not event.is_partial:
            replies[-1].texts.append(event.text)
        elif event.kind == "tool_call" and event.call:
            replies[-1].calls.append(event.call)
        elif event.kind == "tool_result":
            replies[-1].results.append(json_or_text(event.result))
    return replies
