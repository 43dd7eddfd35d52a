"""An ADK invocation that was played, as a turn of a transcript, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.formats.adk.content import read_query, write_query
from evaldesk.formats.adk.events import events_key
from evaldesk.model import Event, ToolCall, TurnRecord
from evaldesk.reading.strict_json import Place
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_text,
)
from evaldesk.transcripts.adk import AdkEvents, message_text, read_parts, spelled


def read_played(place: Place, raw: Any) -> TurnRecord:
    """The turn of an invocation. Raises FormatError."""
    values = spelled(read_mapping(place, raw))
    query, media = read_query(place.at("user_content"), values.get("user_content", ABSENT))
    did = _read_intermediate(place.at("intermediate_data"), values.get("intermediate_data"))
    answer = _parts(place.at("final_response"), values.get("final_response"))
    texts = [event.text for event in did if event.kind == "agent_message"]
    if message_text(answer) and texts[-1:] != [message_text(answer)]:
        author = next((event.author for event in reversed(did) if event.author), "")
        did.append(Event("agent_message", author=author, text=message_text(answer)))
    duration_ms = 1000 * _number(place.at("duration"), values.get("duration"))
    return TurnRecord(query, tuple(did), duration_ms=duration_ms, media=media)


def write_played(record: TurnRecord) -> dict[str, Any]:
    """The invocation of a turn."""
    answers = [at for at, event in enumerate(record.events) if event.kind == "agent_message" and not event.is_partial]
    last = answers[-1] if answers else None
    events = [written for at, event in enumerate(record.events) for written in _write_event(event, is_last=at == last)]
    found: dict[str, Any] = {"user_content": write_query((record.query, record.media))}
    if last is not None:
        found["final_response"] = {"parts": [{"text": record.events[last].text}], "role": "model"}
    found["intermediate_data"] = {"invocation_events": events}
    if record.duration_ms:
        found["duration"] = record.duration_ms / 1000
    return found


def _read_intermediate(place: Place, raw: Any) -> list[Event]:
    if raw is None:
        return []
    raw = read_mapping(place, raw)
    key = events_key(raw)
    reader = AdkEvents()
    if key:
        events = read_list(place.at(key), raw[key], lambda here, event: tuple(reader.read(here, event)))
        return [each for event in events for each in event]
    values = spelled(raw)
    calls = read_list(place.at("tool_uses"), values.get("tool_uses") or [], reader.call)
    found = [Event("tool_call", call=call) for call in calls]
    found += read_list(place.at("tool_responses"), values.get("tool_responses") or [], reader.result)
    found += read_list(place.at("intermediate_responses"), values.get("intermediate_responses") or [], _read_message)
    return found


def _read_message(place: Place, raw: Any) -> Event:
    if not isinstance(raw, list) or len(raw) != 2:
        raise place.error("expected a list of an author and a list of parts")
    parts = read_parts(place, {"parts": raw[1]})
    return Event("agent_message", author=read_text(place.at(0), raw[0]), text=message_text(parts))


def _write_event(event: Event, *, is_last: bool) -> Iterator[dict[str, Any]]:
    fields: dict[str, Any] = {"author": event.author}
    call = event.call
    if event.kind == "usage" and event.usage:
        counts = {"prompt_token_count": event.usage.tokens_in, "candidates_token_count": event.usage.tokens_out}
        yield fields | {"usage_metadata": counts, "model_version": event.usage.model}
    elif event.kind == "agent_message" and not event.is_partial and not is_last:
        yield fields | {"content": {"parts": [{"text": event.text}], "role": "model"}}
    elif event.kind == "agent_message" and is_last:
        yield fields
    elif event.kind == "tool_call" and call:
        part = {"function_call": _named(call) | {"args": dict(call.args)}}
        yield fields | {"content": {"parts": [part], "role": "model"}}
    elif event.kind == "tool_result" and call:
        # ADK wants an object and wraps other values in the same way.
        result = event.result if isinstance(event.result, dict | None) else {"result": event.result}
        answer = _named(call) | ({} if result is None else {"response": result})
        yield fields | {"content": {"parts": [{"function_response": answer}], "role": "user"}}


def _named(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name} | ({} if call.id is None else {"id": call.id})


def _parts(place: Place, raw: Any) -> list[dict[str, Any]]:
    return [] if raw is None else read_parts(place, raw)


def _number(place: Place, raw: Any) -> float:
    if raw is None:
        return 0.0
    if isinstance(raw, bool) or not isinstance(raw, int | float) or abs(raw) > 1e15:
        raise place.error("expected a number of seconds")
    return float(raw)
