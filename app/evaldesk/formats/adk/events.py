"""ADK's InvocationEvents: the events of an agent in a turn, in their order.

Tool calls are the `function_call` parts of all events, in order; a message is the text of one event. The rest
(results, usage, grounding, signatures) is only carried, and stays where it is when calls or messages are edited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evaldesk.formats.adk.content import patch_message
from evaldesk.model import ToolCall
from evaldesk.reading.fields import edited_pairs
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_list, read_mapping, read_text, snake_case
from evaldesk.transcripts.adk import message_text, read_parts

ReadCall = Callable[[JsonPosition, Any], ToolCall]
WriteCall = Callable[[ToolCall], dict[str, Any]]
Messages = tuple[tuple[str, str], ...]


def events_key(raw: dict[str, Any]) -> str | None:
    """The key of the events, as spelled, when this intermediate data is a list of events."""
    return next((key for key in raw if snake_case(key) == "invocation_events"), None)


def read_events(place: JsonPosition, raw: Any, read_call: ReadCall) -> tuple[tuple[ToolCall, ...], Messages]:
    """The tool calls and the messages of the events. Raises FormatError."""
    calls: list[ToolCall] = []
    messages: list[tuple[str, str]] = []
    for index, event in enumerate(read_list(place, raw, read_mapping)):
        here = place.at(index)
        author = read_text(here.at("author"), event.get("author"))
        parts = [] if event.get("content") is None else read_parts(here.at("content"), event["content"])
        for number, part in enumerate(parts):
            key = _call_key(part)
            if key:
                calls.append(read_call(here.at("content", "parts", number, key), part[key]))
        if message_text(parts):
            messages.append((author, message_text(parts)))
    return tuple(calls), tuple(messages)


def patch_events(
    place: JsonPosition,
    raw: Sequence[dict[str, Any]],
    calls: Sequence[ToolCall],
    messages: Messages,
    read_call: ReadCall,
    write_call: WriteCall,
) -> list[dict[str, Any]]:
    """The events with these calls and messages; unchanged ones stay as they are, in their event."""
    old_calls, old_messages = read_events(place, list(raw), read_call)
    events = list(raw)
    if old_messages != messages:
        events = _with_messages(events, old_messages, messages)
    raw_calls, old_raw_calls = [write_call(call) for call in calls], [write_call(call) for call in old_calls]
    return events if raw_calls == old_raw_calls else _with_calls(events, old_raw_calls, raw_calls)


def tool_responses(events: Sequence[dict[str, Any]]) -> list[Any]:
    """The results of tools that the events hold."""
    parts = [part for event in events for part in _parts(event)]
    return [part[key] for part in parts for key in part if snake_case(key) == "function_response" and part[key]]


def _with_calls(
    events: list[dict[str, Any]], old_parts: Sequence[dict[str, Any]], new_parts: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    pairs = edited_pairs(old_parts, new_parts)
    following = _additions(pairs)
    new_places = {before: after for before, after in pairs if before is not None}
    removed_ids = {old_parts[before].get("id") for before, after in new_places.items() if after is None} - {None}
    new_events: list[dict[str, Any]] = []
    number = 0
    for event in events:
        parts: list[dict[str, Any]] = []
        for part in _parts(event):
            key = _call_key(part)
            if not key:
                parts.extend([] if _answers(part, removed_ids) else [part])
                continue
            after = new_places[number]
            parts.extend([] if after is None else [{**part, key: new_parts[after]}])
            parts.extend({"function_call": new_parts[index]} for index in following.get(number, ()))
            number += 1
        new_events.append(_with_parts(event, parts))
    first = [{"function_call": new_parts[index]} for index in following.get(-1, ())]
    author = events[0]["author"] if events else "agent"
    return [{"author": author, "content": {"parts": first, "role": "model"}}, *new_events] if first else new_events


def _with_messages(
    events: list[dict[str, Any]], old_messages: Messages, new_messages: Messages
) -> list[dict[str, Any]]:
    pairs = edited_pairs(old_messages, new_messages)
    following = _additions(pairs)
    new_places = {before: after for before, after in pairs if before is not None}
    new_events = [_message_event(*new_messages[index]) for index in following.get(-1, ())]
    number = 0
    for event in events:
        if not message_text(_parts(event)):
            new_events.append(event)
            continue
        after = new_places[number]
        text = None if after is None else new_messages[after][1]
        author = event["author"] if after is None else new_messages[after][0]
        is_same = after is not None and new_messages[after] == old_messages[number]
        new_events.append(
            event if is_same else {**_with_parts(event, patch_message(_parts(event), text)), "author": author}
        )
        new_events.extend(_message_event(*new_messages[index]) for index in following.get(number, ()))
        number += 1
    return new_events


def _additions(pairs: Sequence[tuple[int | None, int | None]]) -> dict[int, list[int]]:
    """New items by the old one they follow, -1 for those before all."""
    additions: dict[int, list[int]] = {}
    last = -1
    for before, after in pairs:
        if before is not None:
            last = before
        elif after is not None:
            additions.setdefault(last, []).append(after)
    return additions


def _parts(event: dict[str, Any]) -> list[dict[str, Any]]:
    return (event.get("content") or {}).get("parts") or []


def _with_parts(event: dict[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
    if parts == _parts(event):
        return event
    return {**event, "content": {**event["content"], "parts": parts}}


def _message_event(author: str, text: str) -> dict[str, Any]:
    return {"author": author, "content": {"parts": [{"text": text}], "role": "model"}}


def _call_key(part: dict[str, Any]) -> str | None:
    return next((key for key in part if snake_case(key) == "function_call" and part[key] is not None), None)


def _answers(part: dict[str, Any], call_ids: set[Any]) -> bool:
    """Whether the part is the result of one of these calls."""
    responses = [value for key, value in part.items() if snake_case(key) == "function_response" and value]
    return any(response.get("id") in call_ids for response in responses)
