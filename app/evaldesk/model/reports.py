"""Values that an agent reports of itself beside its answer: a reward, a test result."""

from __future__ import annotations

from evaldesk.model.json_value import JsonObject, JsonValue
from evaldesk.model.transcript import Event, Transcript

AUTHOR = "report"


def report(values: JsonObject) -> Event:
    """The event that carries `values`, which must be plain JSON."""
    return Event("log", author=AUTHOR, text=f"The agent reports {', '.join(values)}.", result=dict(values))


def reported_values(transcript: Transcript) -> dict[str, JsonValue]:
    """All that was reported in a trial, by name; what was reported last counts."""
    found: dict[str, JsonValue] = {}
    for turn in transcript.turns:
        for event in turn.events:
            if event.kind == "log" and event.author == AUTHOR and isinstance(event.result, dict):
                found |= event.result
    return found
