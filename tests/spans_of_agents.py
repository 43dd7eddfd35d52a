"""Spans of an agent as OTLP JSON, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

BEGAN_NS = 1_764_000_000_000_000_000


def id_of(text: str, n_bytes: int) -> str:
    return blake2b(text.encode(), digest_size=n_bytes).hexdigest()


def turn_spans(
    query: str,
    answer: str,
    *,
    session: str = "",
    trace: str = "",
    at_s: int = 0,
    tool: str = "",
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """A turn as an agent span with a model call, a tool and a second model call inside."""
    trace_id = id_of(trace or f"{session} {query} {at_s}", 16)
    began = BEGAN_NS + at_s * 10**9
    named = {"gen_ai.conversation.id": session} if session else {}
    user = {"role": "user", "parts": [{"type": "text", "content": query}]}
    reply = {"role": "assistant", "parts": [{"type": "text", "content": answer}]}
    top = span(
        trace_id, "agent", "", began, 900, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    )
    top["attributes"] += pairs(named | dict(attributes))
    if not tool:
        chat = {"gen_ai.operation.name": "chat", **sides([user], [reply]), **USAGE}
        return [top, span(trace_id, "chat", "agent", began + 1, 500, chat)]
    call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": tool, "arguments": {"q": query}}]}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"n": 1}}]}
    tool_values = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": json.dumps({"q": query}),
        "gen_ai.tool.call.result": json.dumps({"n": 1}),
    }
    return [
        top,
        span(
            trace_id,
            "ask",
            "agent",
            began + 1,
            100,
            {"gen_ai.operation.name": "chat", **sides([user], [call]), **USAGE},
        ),
        span(trace_id, "tool", "agent", began + 2 * 10**8, 100, tool_values),
        span(
            trace_id,
            "answer",
            "agent",
            began + 4 * 10**8,
            100,
            {"gen_ai.operation.name": "chat", **sides([user, call, result], [reply]), **USAGE},
        ),
    ]


USAGE = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}


def span(trace_id: str, name: str, parent: str, began: int, took_ms: int, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "traceId": trace_id,
        "spanId": id_of(trace_id + name, 8),
        **({"parentSpanId": id_of(trace_id + parent, 8)} if parent else {}),
        "name": name,
        "startTimeUnixNano": began,
        "endTimeUnixNano": began + took_ms * 10**6,
        "attributes": pairs(values),
    }


def sides(inputs: list[Any], outputs: list[Any]) -> dict[str, str]:
    return {"gen_ai.input.messages": json.dumps(inputs), "gen_ai.output.messages": json.dumps(outputs)}


def pairs(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": wrapped(value)} for key, value in values.items()]


def wrapped(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [wrapped(each) for each in value]}}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def request(spans: list[dict[str, Any]], **resource: str) -> dict[str, Any]:
    """An export request with a resource whose dotted attributes are written with `__`."""
    named = {key.replace("__", "."): value for key, value in resource.items()}
    return {"resourceSpans": [{"resource": {"attributes": pairs(named)}, "scopeSpans": [{"spans": spans}]}]}
