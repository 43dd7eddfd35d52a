"""Moving a case that was read in one format into another without losing its unknown keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from evaldesk.model import Case, JsonObject, Turn
from evaldesk.reading.shape import FORM, format_in, shown_extra

OLD_TURN_KEYS = "old_turn_keys"
_CALL_KEYS = ("partial_args", "will_continue")


def for_adk(case: Case, turn_keys: Collection[str]) -> Case:
    """The case as ADK takes it. ADK refuses unknown keys inside turns but keeps those of a case, so an old
    case's turn keys move to `old_turn_keys` of the case: `[{"turn": 0, "keys": {...}, "calls": {"1": {...}}}]`.
    """
    if format_in(case.extra) == "adk":
        return case
    entries = [entry for index, turn in enumerate(case.turns) if (entry := _foreign(index, turn, turn_keys))]
    turns = tuple(_native(turn, turn_keys) for turn in case.turns)
    extra: dict[str, Any] = {**shown_extra(case.extra), **({OLD_TURN_KEYS: entries} if entries else {})}
    return replace(case, turns=turns, extra=extra)


def _foreign(index: int, turn: Turn, turn_keys: Collection[str]) -> dict[str, Any]:
    keys = {key: value for key, value in shown_extra(turn.extra).items() if key not in turn_keys}
    by_call = {
        str(number): _without(call.extra, _CALL_KEYS) for number, call in enumerate(turn.expected.tool_calls or ())
    }
    calls = {number: call_keys for number, call_keys in by_call.items() if call_keys}
    fields = {name: value for name, value in (("keys", keys), ("calls", calls)) if value}
    return {"turn": index, **fields} if fields else {}


def _native(turn: Turn, turn_keys: Collection[str]) -> Turn:
    calls = turn.expected.tool_calls
    native = calls and tuple(replace(call, extra=_only(call.extra, _CALL_KEYS)) for call in calls)
    return replace(turn, expected=replace(turn.expected, tool_calls=native), extra=_only(turn.extra, turn_keys))


def _only(extra: JsonObject, keys: Collection[str]) -> JsonObject:
    return {key: value for key, value in extra.items() if key in keys}


def _without(extra: JsonObject, keys: Collection[str]) -> JsonObject:
    return {key: value for key, value in extra.items() if key not in keys and key != FORM}
