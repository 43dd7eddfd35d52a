"""Messages of pydantic-ai as it writes them, `result.all_messages_json()`. (pydantic-ai 2.31 messages.py)"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evaldesk.model import ToolCall
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_text, read_text, wrong_value
from evaldesk.transcripts.messages.chat import NO_TEXT, read_arguments
from evaldesk.transcripts.messages.turns import Message

OUTPUT_TOOL = "final_result"
"""The start of the names of the tools by which a model gives a structured output."""


def is_pydantic(conversation: Any) -> bool:
    """Whether this is a list of requests and responses with parts of a kind."""
    if not isinstance(conversation, list) or not conversation:
        return False
    messages = [each for each in conversation if isinstance(each, dict)]
    return len(messages) == len(conversation) and all(
        each.get("kind") in ("request", "response") and isinstance(each.get("parts"), list) for each in messages
    )


def read_pydantic(place: JsonPosition, raw: Any, notes: Notes) -> tuple[Message, ...]:
    """The messages of a list. Raises FormatError."""
    message_lists = read_list(place, raw, lambda at, item: tuple(read_pydantic_message(at, item, notes)))
    return tuple(message for messages in message_lists for message in messages)


def read_pydantic_message(place: JsonPosition, raw: Any, notes: Notes) -> Iterator[Message]:
    """The messages of a request, one a part, or those of a response. Raises FormatError."""
    parts = read_mapping(place, raw).get("parts", ABSENT)
    if raw.get("kind") == "response":
        yield from _read_response(place.at("parts"), parts, notes)
    else:
        for message in read_list(place.at("parts"), parts, lambda at, part: _read_request_part(at, part, notes)):
            if message:
                yield message


def _read_response(place: JsonPosition, raw: Any, notes: Notes) -> Iterator[Message]:
    """The message of the model; a tool of its provider gave its result in the middle of it."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []

    def take_message() -> Message:
        message = Message("agent", "".join(texts), thought="\n".join(thoughts), calls=tuple(calls))
        for each in (texts, thoughts, calls):
            each.clear()
        return message

    def read_part(at: JsonPosition, part: Any) -> tuple[Message, ...]:
        fields = read_mapping(at, part)
        kind = fields.get("part_kind")
        if kind == "builtin-tool-return":
            return take_message(), _read_result(at, fields)
        if kind in ("text", "thinking"):
            (texts if kind == "text" else thoughts).append(read_text(at.at("content"), fields.get("content", ABSENT)))
        elif kind not in ("tool-call", "builtin-tool-call"):
            notes.refuse(NO_TEXT, at)
        elif (call := _read_call(at, fields)).name.startswith(OUTPUT_TOOL):
            texts.append(json.dumps(call.args, ensure_ascii=False))
        else:
            calls.append(call)
        return ()

    for messages in read_list(place, raw, read_part):
        yield from messages
    yield take_message()


def _read_call(place: JsonPosition, fields: dict[str, Any]) -> ToolCall:
    name = read_text(place.at("tool_name"), fields.get("tool_name", ABSENT))
    args, extra = read_arguments(place.at("args"), fields.get("args"))
    return ToolCall(name, args, read_optional_text(place.at("tool_call_id"), fields.get("tool_call_id")), extra)


def _read_request_part(place: JsonPosition, raw: Any, notes: Notes) -> Message | None:
    """The user's or the system's words, or the result of a tool; None for a remark on an answer without a tool."""
    fields = read_mapping(place, raw)
    kind, content = fields.get("part_kind"), fields.get("content")
    if kind in ("user-prompt", "system-prompt"):
        return Message("user" if kind == "user-prompt" else "system", _read_words(place.at("content"), content, notes))
    if kind not in ("tool-return", "retry-prompt"):
        raise wrong_value(place.at("part_kind"), kind, "a part of a request")
    message = _read_result(place, fields)
    return message if message.author and not message.author.startswith(OUTPUT_TOOL) else None


def _read_result(place: JsonPosition, fields: dict[str, Any]) -> Message:
    return Message(
        "tool",
        author=read_optional_text(place.at("tool_name"), fields.get("tool_name")) or "",
        call_id=read_optional_text(place.at("tool_call_id"), fields.get("tool_call_id")),
        result=fields.get("content"),
        is_error=fields.get("part_kind") == "retry-prompt" or fields.get("outcome", "success") != "success",
    )


def _read_words(place: JsonPosition, raw: Any, notes: Notes) -> str:
    if isinstance(raw, str):
        return raw
    words: list[str] = []
    for index, part in enumerate(read_list(place, raw, lambda _, item: item)):
        if not isinstance(part, str):
            notes.refuse(NO_TEXT, place.at(index))
        words.append(part if isinstance(part, str) else "[part]")
    return "\n".join(words)
