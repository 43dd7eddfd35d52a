"""The format "adk-session": a session as `adk web` exports it, or the events of an `adk test` recording.

Its events become turns as ADK's own "Add current session" makes them, but the state at the start is kept.
(google-adk 2.13 sessions/session.py, evaluation/evaluation_generator.py)
"""

from __future__ import annotations

from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.adk_case import read_case
from evaldesk.formats.adk_old import stem
from evaldesk.formats.adk_session_events import invocations_of, state_changes
from evaldesk.formats.exchange import Holding, Imported, RecordedRun
from evaldesk.formats.notes import Notes
from evaldesk.formats.peeking import peek
from evaldesk.formats.reading import read_list, read_mapping, read_optional_mapping, read_optional_text
from evaldesk.formats.shape import snake_case
from evaldesk.formats.strict_json import MAX_RECORDED_BYTES, Document, Place, parse_json
from evaldesk.model import EvalSet, JsonObject

_OTHERS = {"eval_cases", "eval_set_id", "eval_case_results", "instance_id", "simulations", "conversation"}
_KNOWN = ("app_name", "user_id", "state", "events")


class AdkSession:
    """`{"id", "app_name", "user_id", "state", "events": [...]}`, snake_case or camelCase."""

    title = "ADK session"
    suffixes = (".session.json", ".json")
    writes: tuple[Holding, ...] = ()

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with a list of events that have authors, or with what only a session has."""
        value = peek(data).whole
        if not isinstance(value, dict) or not isinstance(value.get("events"), list):
            return False
        keys = {snake_case(key) for key in value}
        if keys & _OTHERS:
            return False
        authors = any(isinstance(event, dict) and "author" in event for event in value["events"])
        return authors or {"app_name", "user_id"} <= keys

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """An eval set with the session as its one case. Raises FormatError."""
        document = parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
        place = Place(document)
        raw = {snake_case(key): value for key, value in read_mapping(place, document.value).items()}
        notes = Notes()
        events = read_list(place.at("events"), raw.get("events"), read_mapping)
        conversation = invocations_of(place.at("events"), events, notes)
        if not conversation:
            raise place.at("events").error("no event says anything: the session holds no turn")
        name = stem(source).removesuffix(".session")
        case = {"eval_id": name, "conversation": conversation, **_session(place, raw, events)}
        rest = {key: value for key, value in raw.items() if key not in _KNOWN}
        if rest:
            case["recorded_session"] = rest
        case_read = read_case(Place(Document(case, source=source)), case)
        return Imported("adk-session", EvalSet(name, cases=(case_read,)), refused=notes.sentences)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """Nothing: a session is what happened, and neither an eval set nor a run is one."""
        raise FormatError("a session cannot be written from an eval set or a run")


def _session(place: Place, raw: dict[str, Any], events: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The initial session and the final state: keys that no event changed were there from the start."""
    state: JsonObject = read_optional_mapping(place.at("state"), raw.get("state")) or {}
    changed = state_changes(place.at("events"), events)
    final = {key: value for key, value in {**changed, **state}.items() if key in changed}
    start = {key: value for key, value in state.items() if key not in changed}
    found: dict[str, Any] = {}
    names = {key: read_optional_text(place.at(key), raw.get(key)) or "" for key in ("app_name", "user_id")}
    if start or any(names.values()):
        found["session_input"] = {**names, "state": start}
    if final:
        found["final_session_state"] = final
    return found
