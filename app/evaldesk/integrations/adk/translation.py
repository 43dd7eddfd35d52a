"""Conversion of google-adk's event objects to our events; `transcripts.adk` reads their plain data."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from evaldesk.integrations.adk.answers import REPLAYED_KEY
from evaldesk.integrations.adk.witness import Witness
from evaldesk.model import Event, Usage
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.adk import AdkEvents
from evaldesk.wire import plain_json

_NOWHERE = JsonPosition(Document(None))
_COUNTS = (
    "prompt_token_count",
    "tool_use_prompt_token_count",
    "candidates_token_count",
    "thoughts_token_count",
    "cached_content_token_count",
    "total_token_count",
)


def events_of_adk(adk_event: Any, witness: Witness, *, within: str = "", is_streaming: bool = False) -> Iterator[Event]:
    """The events in one event of google-adk: usage, text, calls, results, and the error that ends a turn.

    `within` is the name of the surrounding tool.
    """
    parent = witness.parents.get(adk_event.author, "")
    for read_event in AdkEvents(witness.calls, witness.requests).read(_NOWHERE, _plain_event(adk_event)):
        event = (
            replace(read_event, parent=parent)
            if read_event.author == adk_event.author and not read_event.parent
            else read_event
        )
        if event.is_partial:
            if is_streaming:
                yield event
        elif event.usage:
            yield replace(event, within=within, usage=_usage_with_cost(event.usage, adk_event, witness))
        elif event.kind == "tool_result" and event.call:
            took_ms = witness.took_ms.get(event.call.id or "")
            yield replace(event, within=within, duration_ms=took_ms)
        elif event.error and within:
            yield Event("log", author=event.author, within=within, text=event.error.message)
        else:
            yield replace(event, within=within)


def _plain_event(adk_event: Any) -> dict[str, Any]:
    """The used fields of the event in the form of ADK's server; `model_dump` takes ten times as long."""
    usage = adk_event.usage_metadata
    return {
        "author": adk_event.author,
        "partial": adk_event.partial,
        "content": {
            "parts": [_plain_part(part) for part in (adk_event.content.parts if adk_event.content else None) or ()]
        },
        "usage_metadata": usage and {key: getattr(usage, key, None) for key in _COUNTS},
        "model_version": getattr(adk_event, "model_version", None),  # older versions do not say
        "long_running_tool_ids": list(adk_event.long_running_tool_ids or ()),
        "actions": {
            "requested_tool_confirmations": dict.fromkeys(_confirmations(adk_event)),
            "route": getattr(adk_event.actions, "route", None),
        },
        "error_code": adk_event.error_code,
        "error_message": adk_event.error_message,
        **_node(adk_event),
    }


def _node(adk_event: Any) -> dict[str, Any]:
    """The node of a workflow that gave the event, and its output; nothing of other agents and older versions."""
    info = getattr(adk_event, "node_info", None)
    if info is None or not info.path:
        return {}
    return {
        "node_info": {"path": info.path, "output_for": info.output_for},
        "output": plain_json(_plain_output(getattr(adk_event, "output", None))),
    }


def _plain_output(output: Any) -> Any:
    """The output as JSON has it: of a model of pydantic its fields, of a content its text."""
    if hasattr(output, "parts"):
        return "".join(part.text or "" for part in output.parts or ())
    return output.model_dump(mode="json") if hasattr(output, "model_dump") else output


def _confirmations(adk_event: Any) -> Iterable[str]:
    return getattr(adk_event.actions, "requested_tool_confirmations", None) or ()  # older versions have none


def _plain_part(part: Any) -> dict[str, Any]:
    if part.function_call:
        call = part.function_call
        return {"function_call": {"name": call.name or "", "args": plain_json(dict(call.args or {})), "id": call.id}}
    if part.function_response:
        response = part.function_response
        return {
            "function_response": {"name": response.name, "id": response.id, "response": plain_json(response.response)}
        }
    if part.executable_code:
        return {"executable_code": {"code": part.executable_code.code}}
    if part.code_execution_result:
        return {"code_execution_result": {"output": part.code_execution_result.output}}
    if part.inline_data and part.inline_data.data:
        data = base64.b64encode(part.inline_data.data).decode()
        return {"inline_data": {"mime_type": part.inline_data.mime_type, "data": data}}
    if part.file_data:
        return {"file_data": {"mime_type": part.file_data.mime_type, "file_uri": part.file_data.file_uri}}
    return {"text": part.text, "thought": part.thought}


def _usage_with_cost(usage: Usage, adk_event: Any, witness: Witness) -> Usage:
    from evaldesk.llm import with_cost

    model = witness.models.get(adk_event.author) or usage.model or witness.model
    is_replayed = bool((adk_event.custom_metadata or {}).get(REPLAYED_KEY))
    zero_cost_usage = replace(usage, model=model, cost=0.0)
    return replace(
        zero_cost_usage if is_replayed else with_cost(zero_cost_usage),
        is_replayed=is_replayed,
        is_cut=str(getattr(adk_event, "finish_reason", "")).endswith("MAX_TOKENS"),
        duration_ms=witness.took_ms.get(adk_event.author, 0.0),
    )
