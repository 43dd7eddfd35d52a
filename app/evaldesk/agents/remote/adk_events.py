"""Events of ADK that a server or a task sends as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaldesk.errors import AgentError, FormatError
from evaldesk.llm import with_cost
from evaldesk.model import Event
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.adk import AdkEvents
from evaldesk.transcripts.recorded import BAD_NUMBER
from evaldesk.wire import plain_json

NO_MEMORY_NOTE = "the server was not there before: it does not remember the earlier turns"


def read_adk_event(reader: AdkEvents, author: str, adk_event: Mapping[str, Any], address: str) -> list[Event]:
    """The events in an event of ADK that `address` sent, with prices. Raises AgentError."""
    raw = plain_json({"author": author, **{key: value for key, value in adk_event.items() if value is not None}})
    if isinstance(raw, dict):  # `plain_json` makes text of a NaN
        raw |= {key: adk_event[key] for key in ("usageMetadata", "usage_metadata") if adk_event.get(key) is not None}
    try:
        events = list(reader.read(JsonPosition(Document(raw)), raw))
    except FormatError as error:
        raise AgentError(f"{address} sent an event that cannot be read: {error}") from error
    number_error = next((event.error for event in events if event.error and event.error.kind == BAD_NUMBER), None)
    if number_error:
        raise AgentError(f"{address} sent an event that cannot be read: {number_error.message}")
    events_with_usage = (
        (event, event.usage and replace(event.usage, model=event.usage.model or "unknown")) for event in events
    )
    return [replace(event, usage=usage and with_cost(usage)) for event, usage in events_with_usage]
