"""An ADK invocation that was played, as a turn of a transcript, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.formats.adk_content import message_text, read_parts, read_query
from evaldesk.formats.adk_events import events_key
from evaldesk.formats.reading import read_list, read_mapping, read_optional_mapping, read_optional_text, read_text
from evaldesk.formats.shape import ABSENT, snake_case
from evaldesk.formats.strict_json import Place
from evaldesk.model import Event, JsonObject, ToolCall, TurnRecord, Usage


def read_played(place: Place, raw: Any) -> TurnRecord:
    """The turn of an invocation. Raises FormatError."""
    values = _spelled(read_mapping(place, raw))
    query = read_query(place.at("user_content"), values.get("user_content", ABSENT))
    did = _read_intermediate(place.at("intermediate_data"), values.get("intermediate_data"))
    answer = _parts(place.at("final_response"), values.get("final_response"))
    texts = [event.text for event in did if event.kind == "agent_message"]
    if message_text(answer) and texts[-1:] != [message_text(answer)]:
        author = next((event.author for event in reversed(did) if event.author), "")
        did.append(Event("agent_message", author=author, text=message_text(answer)))
    return TurnRecord(query, tuple(did), duration_ms=1000 * _number(place.at("duration"), values.get("duration")))


def write_played(record: TurnRecord) -> dict[str, Any]:
    """The invocation of a turn."""
    answers = [at for at, event in enumerate(record.events) if event.kind == "agent_message" and not event.is_partial]
    last = answers[-1] if answers else None
    events = [written for at, event in enumerate(record.events) for written in _write_event(event, is_last=at == last)]
    found: dict[str, Any] = {"user_content": {"parts": [{"text": record.query}], "role": "user"}}
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
    if key:
        events = read_list(place.at(key), raw[key], _read_event)
        return [each for event in events for each in event]
    values = _spelled(raw)
    calls = read_list(place.at("tool_uses"), values.get("tool_uses") or [], _read_call)
    found = [Event("tool_call", call=call) for call in calls]
    found += read_list(place.at("tool_responses"), values.get("tool_responses") or [], _read_result)
    found += read_list(place.at("intermediate_responses"), values.get("intermediate_responses") or [], _read_said)
    return found


def _read_event(place: Place, raw: Any) -> tuple[Event, ...]:
    event = _spelled(read_mapping(place, raw))
    author = read_optional_text(place.at("author"), event.get("author")) or ""
    found = list(_read_usage(place, event))
    parts = _parts(place.at("content"), event.get("content"))
    if message_text(parts):
        found.append(Event("agent_message", author=author, text=message_text(parts)))
    for number, part in enumerate(parts):
        for key, value in part.items():
            here = place.at("content", "parts", number, key)
            if snake_case(key) == "function_call" and value is not None:
                found.append(Event("tool_call", author=author, call=_read_call(here, value)))
            elif snake_case(key) == "function_response" and value is not None:
                found.append(_read_result(here, value))
            elif key == "thought" and value and isinstance(part.get("text"), str):
                found.append(Event("log", author="thought", text=part["text"]))
    return tuple(found)


def _read_usage(place: Place, event: dict[str, Any]) -> Iterator[Event]:
    raw = read_optional_mapping(place.at("usage_metadata"), event.get("usage_metadata"))
    if raw is None:
        return
    counts = {snake_case(key): value for key, value in raw.items()}
    tokens_in = _count(counts, "prompt_token_count") + _count(counts, "tool_use_prompt_token_count")
    tokens_out = _count(counts, "candidates_token_count") + _count(counts, "thoughts_token_count")
    model = read_optional_text(place.at("model_version"), event.get("model_version")) or ""
    yield Event("usage", usage=Usage(model, tokens_in=tokens_in, tokens_out=tokens_out))


def _read_call(place: Place, raw: Any) -> ToolCall:
    raw = read_mapping(place, raw)
    args: JsonObject = read_optional_mapping(place.at("args"), raw.get("args")) or {}
    call_id = read_optional_text(place.at("id"), raw.get("id"))
    return ToolCall(read_text(place.at("name"), raw.get("name", ABSENT)), args, call_id)


def _read_result(place: Place, raw: Any) -> Event:
    raw = read_mapping(place, raw)
    call = ToolCall(
        read_optional_text(place.at("name"), raw.get("name")) or "",
        id=read_optional_text(place.at("id"), raw.get("id")),
    )
    return Event("tool_result", call=call, result=read_optional_mapping(place.at("response"), raw.get("response")))


def _read_said(place: Place, raw: Any) -> Event:
    if not isinstance(raw, list) or len(raw) != 2:
        raise place.error("expected a list of an author and a list of parts")
    parts = read_parts(place, {"parts": raw[1]})
    return Event("agent_message", author=read_text(place.at(0), raw[0]), text=message_text(parts))


def _write_event(event: Event, *, is_last: bool) -> Iterator[dict[str, Any]]:
    said: dict[str, Any] = {"author": event.author}
    call = event.call
    if event.kind == "usage" and event.usage:
        counts = {"prompt_token_count": event.usage.tokens_in, "candidates_token_count": event.usage.tokens_out}
        yield said | {"usage_metadata": counts, "model_version": event.usage.model}
    elif event.kind == "agent_message" and not event.is_partial and not is_last:
        yield said | {"content": {"parts": [{"text": event.text}], "role": "model"}}
    elif event.kind == "agent_message" and is_last:
        yield said
    elif event.kind == "tool_call" and call:
        part = {"function_call": _named(call) | {"args": dict(call.args)}}
        yield said | {"content": {"parts": [part], "role": "model"}}
    elif event.kind == "tool_result" and call:
        # ADK wants an object and wraps what is none in the same way.
        result = event.result if isinstance(event.result, dict | None) else {"result": event.result}
        answer = _named(call) | ({} if result is None else {"response": result})
        yield said | {"content": {"parts": [{"function_response": answer}], "role": "user"}}


def _named(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name} | ({} if call.id is None else {"id": call.id})


def _spelled(raw: dict[str, Any]) -> dict[str, Any]:
    return {snake_case(key): value for key, value in raw.items()}


def _parts(place: Place, raw: Any) -> list[dict[str, Any]]:
    return [] if raw is None else read_parts(place, raw)


def _number(place: Place, raw: Any) -> float:
    if raw is None:
        return 0.0
    if isinstance(raw, bool) or not isinstance(raw, int | float) or abs(raw) > 1e15:
        raise place.error("expected a number of seconds")
    return float(raw)


def _count(counts: dict[str, Any], key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
