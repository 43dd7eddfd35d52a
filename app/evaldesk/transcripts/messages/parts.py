"""Messages with parts, as the GenAI conventions of OpenTelemetry and the Gemini API write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.model import ToolCall
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition, parse_json
from evaldesk.reading.values import read_mapping, read_optional_text, read_text, text_of
from evaldesk.transcripts.messages.chat import NO_TEXT, read_arguments, read_chat_message, read_speaker
from evaldesk.transcripts.messages.turns import Message


def json_value(raw: Any) -> Any:
    """The value in an attribute, which may be JSON text; text that is none stays text."""
    try:
        return parse_value(raw)
    except FormatError:
        return raw


def parse_value(raw: Any) -> Any:
    """The value of JSON text; bare text is itself. Raises FormatError for JSON that is cut off."""
    if not isinstance(raw, str) or raw.lstrip()[:1] not in ("{", "["):
        return raw
    return parse_json(raw.encode("utf-8", "surrogatepass"), source="").value


def in_order(raw: Any) -> list[Any]:
    """The values of `{"0": ..., "1": ...}` by number; a list is one already."""
    if isinstance(raw, list):
        return raw
    if not isinstance(raw, dict):
        return []
    return [raw[key] for key in sorted((key for key in raw if key.isdecimal() and len(key) < 9), key=int)]


def read_part_message(place: JsonPosition, raw: Any, notes: Notes) -> Iterator[Message]:
    """The messages that a raw one is: with `parts` it may bring the results of several tools, and words as well."""
    message = read_mapping(place, raw)
    parts = message.get("parts")
    if not isinstance(parts, list):
        calls = in_order(message.get("tool_calls"))
        yield read_chat_message(place, {**message, "tool_calls": calls}, notes)
        return
    speaker = read_speaker(place.at("role"), message.get("role") or "user")
    texts: list[str] = []
    thoughts: list[str] = []
    part_calls: list[ToolCall] = []
    results: list[Message] = []
    for index, part in enumerate(parts):
        at, fields = place.at("parts", index), read_mapping(place, part)
        call, result = _part_call(at, fields), _part_result(fields)
        text = fields.get("content", fields.get("text"))
        if call:
            part_calls.append(call)
        elif result:
            results.append(result)
        elif isinstance(text, str):
            is_thought = fields.get("type") in ("reasoning", "thinking") or fields.get("thought") is True
            (thoughts if is_thought else texts).append(text)
        elif fields.get("type") or set(fields) - {"thought_signature"}:
            notes.refuse(NO_TEXT, at)
    yield from results
    if texts or thoughts or part_calls or not results:
        yield Message(speaker, "\n".join(texts), thought="\n".join(thoughts), calls=tuple(part_calls))


def _part_call(place: JsonPosition, part: dict[str, Any]) -> ToolCall | None:
    fields = _fields_of(part, "function_call", "functionCall", "tool_call")
    if fields is None:
        return None
    args, extra = read_arguments(place, fields.get("arguments", fields.get("args")))
    name, call_id = (
        read_text(place.at("name"), fields.get("name")),
        read_optional_text(place.at("id"), fields.get("id")),
    )
    return ToolCall(name, args, call_id, extra)


def _part_result(part: dict[str, Any]) -> Message | None:
    fields = _fields_of(part, "function_response", "functionResponse", "tool_call_response")
    if fields is None:
        return None
    call_id = fields.get("id")
    return Message(
        "tool",
        author=text_of(fields.get("name")),
        call_id=call_id if isinstance(call_id, str) else None,
        result=fields.get("response", fields.get("result")),
    )


def _fields_of(part: dict[str, Any], key: str, other_key: str, kind: str) -> dict[str, Any] | None:
    """The call in a part: Gemini has it under a key of its own, OpenTelemetry in a part of that type."""
    inner = part.get(key, part.get(other_key))
    if isinstance(inner, dict):
        return inner
    return part if part.get("type") == kind else None
