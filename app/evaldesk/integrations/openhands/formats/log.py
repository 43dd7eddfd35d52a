"""The format "openhands-log": the events of one conversation, written by the SDK (V1) or saved as a trajectory (V0).

(software-agent-sdk openhands/sdk/event; OpenHands openhands/events/serialization/event.py)
"""

from __future__ import annotations

from typing import Any

from evaldesk.errors import BadNumberError, FormatError
from evaldesk.formats.exchange import Imported, ReadOnly, imported_sessions
from evaldesk.integrations.openhands.recorded_events import CONVERSATION_ERROR, failure_of, read_event
from evaldesk.integrations.openhands.recorded_rows import read_usages
from evaldesk.model import ErrorRecord, Usage
from evaldesk.reading.fields import read_values
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import read_mapping, read_optional_mapping
from evaldesk.transcripts.messages.chat import NO_TEXT
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import bad_number, file_stem
from evaldesk.transcripts.recorded_ends import bound_of
from evaldesk.transcripts.recorded_sessions import Session, run_of_sessions

AGENT = "OpenHands"
_GOING_ON = ("MessageEvent", "ActionEvent", "ObservationEvent", CONVERSATION_ERROR)  # a kind may be a list in a file


class OpenHandsLog(ReadOnly):
    """One event a line, `{"id", "timestamp", "source", "kind"}`, or a list of `{"action"}` and `{"observation"}`."""

    title = "OpenHands event log"
    suffixes = (".jsonl", ".json")
    instead = "write a run as openhands"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the first thing in the file is an event, of the SDK or of a saved trajectory."""
        preview = peek(data)
        first = preview.document[0] if isinstance(preview.document, list) and preview.document else preview.line
        if not isinstance(first, dict) or not {"source", "timestamp"} <= set(first):
            return False
        kind = first.get("kind")
        is_new = isinstance(kind, str) and kind.endswith(("Event", "Observation"))
        return is_new or bool({"action", "observation"} & set(first))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """One session as a case and its one trial. Raises FormatError."""
        notes = Notes()
        messages: list[Message] = []
        events: list[dict[str, Any]] = []
        event_ids: set[str] = set()
        for place, raw in read_values(data, source):
            event = read_mapping(place, raw)
            event_id = event.get("id")
            if isinstance(event_id, str):
                if event_id in event_ids:  # of a log that was joined from overlapping parts
                    continue
                event_ids.add(event_id)
            events.append(event)
            messages += read_event(place, event, notes)
        turns = turns_of(messages, tells_results=True)
        if not turns:
            raise FormatError("no event has content: the log contains no turn", source=source)
        name = file_stem(source)
        usages = _usages(JsonPosition(Document(None, source=source)), events)
        model = next((each.model for each in usages if isinstance(each, Usage) and each.model != "unknown"), None)
        session = Session(name, turns, _failure(events), usages=usages, n_lost=notes.count(NO_TEXT))
        run = run_of_sessions(name, AGENT, model, [session])
        return imported_sessions("openhands-log", run, "1 recorded session", notes)


def _failure(events: list[dict[str, Any]]) -> ErrorRecord | None:
    """Why the conversation broke off; None when it went on afterwards, or the agent ran into a bound of its own."""
    last_event = next((event for event in reversed(events) if event.get("kind") in _GOING_ON), None)
    if last_event is None or last_event["kind"] != CONVERSATION_ERROR or bound_of(failure_of(last_event)):
        return None
    return ErrorRecord("instance_error", failure_of(last_event))


def _usages(place: JsonPosition, events: list[dict[str, Any]]) -> tuple[Usage | ErrorRecord, ...]:
    """The cost of the conversation, by the last event that counts it from the beginning, or a number that cannot be."""
    for event in reversed(events):
        value = event.get("value")
        stats = value.get("usage_to_metrics") if isinstance(value, dict) and event.get("key") == "stats" else None
        metrics_by_key = stats if isinstance(stats, dict) else {"llm_metrics": event.get("llm_metrics")}
        parts = [read_optional_mapping(place.at(key), metrics) for key, metrics in metrics_by_key.items()]
        if any(parts) or metrics_by_key is stats:
            try:
                return tuple(usage for part in parts for usage in read_usages(place, part or {}))
            except BadNumberError as error:
                return (bad_number(error),)
    return ()
