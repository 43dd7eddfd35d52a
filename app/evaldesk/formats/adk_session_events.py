"""From the events of an ADK session to invocations. (google-adk 2.13 evaluation/evaluation_generator.py)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evaldesk.formats.adk_content import parts_text, read_parts
from evaldesk.formats.notes import Notes
from evaldesk.formats.reading import read_optional_mapping, read_optional_text
from evaldesk.formats.shape import snake_case
from evaldesk.formats.strict_json import Place

PIECES = "a piece of a streamed answer, which the whole answer repeats"
_KEPT = ("author", "content", "grounding_metadata", "usage_metadata", "model_version")


def invocations_of(place: Place, events: Sequence[dict[str, Any]], notes: Notes) -> list[dict[str, Any]]:
    """The turns of a session as ADK's invocations, in the order in which they began. Raises FormatError."""
    groups: dict[str, list[tuple[Place, dict[str, Any]]]] = {}
    key = ""
    for index, raw in enumerate(events):
        here = place.at(index)
        event = {snake_case(name): value for name, value in raw.items()}
        named = read_optional_text(here.at("invocation_id"), event.get("invocation_id"))
        # A recording without ids: whatever the user says begins a turn.
        key = named or (f"\x00{index}" if _author(here, event) == "user" or not key else key)
        groups.setdefault(key, []).append((here, event))
    invocations = (_invocation(key.partition("\x00")[0], group, notes) for key, group in groups.items())
    return [invocation for invocation in invocations if invocation]


def state_changes(place: Place, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The keys of the state that events set, with the last value of each; `temp:` keys are never stored."""
    changed: dict[str, Any] = {}
    for index, event in enumerate(events):
        here = place.at(index, "actions")
        actions = read_optional_mapping(here, event.get("actions")) or {}
        delta = actions.get("state_delta", actions.get("stateDelta"))
        changed |= read_optional_mapping(here.at("state_delta"), delta) or {}
    return {key: value for key, value in changed.items() if not key.startswith("temp:")}


def _invocation(name: str, group: Sequence[tuple[Place, dict[str, Any]]], notes: Notes) -> dict[str, Any] | None:
    said = [(here, event, _parts(here, event)) for here, event in group]
    asked = [event["content"] for here, event, _ in said if _author(here, event) == "user" and event.get("content")]
    did = [each for each in said if _author(each[0], each[1]) != "user" and each[2]]
    final = _final(did)
    kept = []
    for at, (here, event, parts) in enumerate(did):
        if event.get("partial"):
            notes.refuse(PIECES, here)
        elif at == final and not _has(parts, "function_call"):
            kept.append({key: event[key] for key in _KEPT if key in event and key != "content"})
        else:
            kept.append({key: event[key] for key in _KEPT if key in event})
    if not asked and not kept:
        return None
    found: dict[str, Any] = {"invocation_id": name} if name else {}
    found["user_content"] = asked[0] if asked else {"parts": [{"text": ""}], "role": "user"}
    if final is not None:
        found["final_response"] = did[final][1]["content"]
    found["intermediate_data"] = {"invocation_events": kept}
    return found


def _final(did: Sequence[tuple[Place, dict[str, Any], list[dict[str, Any]]]]) -> int | None:
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


def _parts(here: Place, event: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that say anything."""
    content = event.get("content")
    parts = [] if content is None else read_parts(here.at("content"), content)
    is_silent = not parts_text(parts) and all(
        value is None or snake_case(key) in ("text", "thought") for part in parts for key, value in part.items()
    )
    return [] if is_silent else parts


def _author(here: Place, event: dict[str, Any]) -> str:
    return (read_optional_text(here.at("author"), event.get("author")) or "").lower()
