"""The format "adk-session": a session as `adk web` exports it, or the events of an `adk test` recording.

Its events become turns as ADK's own "Add current session" makes them, but the state at the start is kept.
(google-adk 2.13 sessions/session.py, evaluation/evaluation_generator.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evaldesk.formats.adk.case import read_case
from evaldesk.formats.adk.old import stem
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.formats.recorded_cases import repeatable_cases
from evaldesk.model import Case, EvalSet, JsonObject
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition, parse_recorded_json
from evaldesk.reading.values import read_list, read_mapping, read_optional_mapping, read_optional_text, snake_case
from evaldesk.transcripts.adk import kept_state, parts_text, read_parts, spelled

_OTHERS = {"eval_cases", "eval_set_id", "eval_case_results", "instance_id", "simulations", "conversation"}
_SESSION_KEYS = ("app_name", "user_id", "state", "events")


class AdkSession(ReadOnly):
    """`{"id", "app_name", "user_id", "state", "events": [...]}`, snake_case or camelCase."""

    title = "ADK session"
    suffixes = (".session.json", ".json")
    instead = "a session is a record; write an eval set as adk"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with a list of events that have authors, or with keys that only a session has."""
        value = peek(data).document
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
        document = parse_recorded_json(data, source=source)
        place = JsonPosition(document)
        raw = spelled(read_mapping(place, document.value))
        notes = Notes()
        events = read_list(place.at("events"), raw.get("events"), read_mapping)
        if not events:
            return Imported("adk-session", understood=_start_words(place, raw))
        name = stem(source).removesuffix(".session")
        case = case_of(place, raw, name, notes)
        if case is None:
            raise place.at("events").error("no event has content: the session contains no turn")
        cases, sentences = repeatable_cases((case,), {case.id: recorded_at(events)})
        return Imported("adk-session", EvalSet(name, cases=cases), understood=sentences, refused=notes.sentences)


def case_of(place: JsonPosition, raw: dict[str, Any], name: str, notes: Notes) -> Case | None:
    """The case of a session with keys in snake_case; None when no event says anything. Raises FormatError."""
    events = read_list(place.at("events"), raw.get("events"), read_mapping)
    conversation = invocations_of(place.at("events"), events, notes)
    if not conversation:
        return None
    case = {"eval_id": name, "conversation": conversation, **_session(place, raw, events)}
    other_keys = {key: value for key, value in raw.items() if key not in _SESSION_KEYS}
    if other_keys:
        case["recorded_session"] = other_keys
    return read_case(JsonPosition(Document(case, source=place.document.source)), case)


def recorded_at(events: Iterable[dict[str, Any]]) -> float | None:
    """The time of the last event in seconds since 1970; None where no event has one."""
    times = (event.get("timestamp") for event in events)
    return max((time for time in times if isinstance(time, int | float) and time > 0), default=None)


def _start_words(place: JsonPosition, raw: dict[str, Any]) -> tuple[str, ...]:
    """Sentences on a session without events, the `initial.session.json` from which tests start."""
    state = read_optional_mapping(place.at("state"), raw.get("state")) or {}
    app, user = (read_optional_text(place.at(key), raw.get(key)) or "" for key in ("app_name", "user_id"))
    keys = ", ".join(state) or "no key"
    return (
        f"A session to start from, without a turn: app {app!r}, user {user!r}, state with {keys}.",
        "It is the `initial_session_file` of AgentEvaluator.evaluate; there is no eval set to import.",
    )


def _session(place: JsonPosition, raw: dict[str, Any], events: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The initial session and the final state: keys that no event changed were there from the start."""
    state: JsonObject = read_optional_mapping(place.at("state"), raw.get("state")) or {}
    changes = state_changes(place.at("events"), events)
    final = {key: value for key, value in {**changes, **state}.items() if key in changes}
    start = {key: value for key, value in state.items() if key not in changes}
    fields: dict[str, Any] = {}
    names = {key: read_optional_text(place.at(key), raw.get(key)) or "" for key in ("app_name", "user_id")}
    if start or any(names.values()):
        fields["session_input"] = {**names, "state": start}
    if final:
        fields["final_session_state"] = final
    return fields


PIECES = "a piece of a streamed answer, which the whole answer repeats"
_EVENT_KEYS = ("author", "content", "grounding_metadata", "usage_metadata", "model_version")


def invocations_of(place: JsonPosition, events: Sequence[dict[str, Any]], notes: Notes) -> list[dict[str, Any]]:
    """The turns of a session as ADK's invocations, in the order in which they began. Raises FormatError."""
    groups: dict[str, list[tuple[JsonPosition, dict[str, Any]]]] = {}
    key = ""
    for index, raw in enumerate(events):
        here = place.at(index)
        event = spelled(raw)
        invocation_id = read_optional_text(here.at("invocation_id"), event.get("invocation_id"))
        # A recording without ids: each message of the user begins a turn.
        key = invocation_id or (f"\x00{index}" if _author(here, event) == "user" or not key else key)
        groups.setdefault(key, []).append((here, event))
    invocations = (_invocation(key.partition("\x00")[0], group, notes) for key, group in groups.items())
    return [invocation for invocation in invocations if invocation]


def state_changes(place: JsonPosition, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The keys of the state that events set, with the last value of each."""
    changes: dict[str, Any] = {}
    for index, event in enumerate(events):
        here = place.at(index, "actions")
        actions = read_optional_mapping(here, event.get("actions")) or {}
        delta = actions.get("state_delta", actions.get("stateDelta"))
        changes |= read_optional_mapping(here.at("state_delta"), delta) or {}
    return kept_state(changes)


def _invocation(name: str, group: Sequence[tuple[JsonPosition, dict[str, Any]]], notes: Notes) -> dict[str, Any] | None:
    events = [(here, event, _parts(here, event)) for here, event in group]
    user_contents = [
        event["content"] for here, event, _ in events if _author(here, event) == "user" and event.get("content")
    ]
    did = [each for each in events if _author(each[0], each[1]) != "user" and each[2]]
    final = _final(did)
    agent_events = []
    for at, (here, event, parts) in enumerate(did):
        if event.get("partial"):
            notes.refuse(PIECES, here)
        elif at == final and not _has(parts, "function_call"):
            agent_events.append({key: event[key] for key in _EVENT_KEYS if key in event and key != "content"})
        else:
            agent_events.append({key: event[key] for key in _EVENT_KEYS if key in event})
    if not user_contents and not agent_events:
        return None
    invocation: dict[str, Any] = {"invocation_id": name} if name else {}
    invocation["user_content"] = user_contents[0] if user_contents else {"parts": [{"text": ""}], "role": "user"}
    if final is not None:
        invocation["final_response"] = did[final][1]["content"]
    invocation["intermediate_data"] = {"invocation_events": agent_events}
    return invocation


def _final(did: Sequence[tuple[JsonPosition, dict[str, Any], list[dict[str, Any]]]]) -> int | None:
    """The place of the last event that ends a turn."""
    return next((at for at in reversed(range(len(did))) if _is_final(did[at][1], did[at][2])), None)


def _is_final(event: dict[str, Any], parts: list[dict[str, Any]]) -> bool:
    actions = event.get("actions")
    skips = isinstance(actions, dict) and (actions.get("skip_summarization") or actions.get("skipSummarization"))
    if skips or event.get("long_running_tool_ids"):
        return True
    has_tools = _has(parts, "function_call") or _has(parts, "function_response")
    return not (has_tools or event.get("partial") or _has(parts[-1:], "code_execution_result"))


def _has(parts: Sequence[dict[str, Any]], kind: str) -> bool:
    return any(snake_case(key) == kind and part[key] is not None for part in parts for key in part)


def _parts(here: JsonPosition, event: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that say anything."""
    content = event.get("content")
    parts = [] if content is None else read_parts(here.at("content"), content)
    is_silent = not parts_text(parts) and all(
        value is None or snake_case(key) in ("text", "thought") for part in parts for key, value in part.items()
    )
    return [] if is_silent else parts


def _author(here: JsonPosition, event: dict[str, Any]) -> str:
    return (read_optional_text(here.at("author"), event.get("author")) or "").lower()
