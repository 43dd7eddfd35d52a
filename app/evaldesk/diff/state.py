"""Session state before and after, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaldesk.diff.text_diff import Segment, diff_json
from evaldesk.matching import differing_keys, json_equal
from evaldesk.model import Change, JsonObject, JsonValue
from evaldesk.model.json_text import json_line


@dataclass(frozen=True, slots=True)
class StateRow:
    """One key of the state in a turn; a side without the key is None.

    `expected` is the JSON text of the case's final state; it and `is_as_expected` are None without an assertion.
    """

    key: str
    before: tuple[Segment, ...] | None
    after: tuple[Segment, ...] | None
    is_changed: bool
    expected: str | None = None
    is_as_expected: bool | None = None


def state_diff(before: JsonObject, after: JsonObject) -> tuple[Change, ...]:
    """The changed top-level keys: keys of `before` in their order, then new ones."""
    return tuple(
        Change(key, before.get(key), after.get(key), key in before, key in after)
        for key in differing_keys(before, after)
    )


def state_rows(
    before: JsonObject, after: JsonObject, expected: JsonObject | None = None, accepted_values: JsonObject | None = None
) -> tuple[StateRow, ...]:
    """A row for each key, changed or not, with the assertion of `expected` (the case's final state).

    `accepted` is the expected state with the values of the trial that the case accepts.
    """
    accepted_values = expected if accepted_values is None else accepted_values
    changed_keys = differing_keys(before, after)
    keys = dict.fromkeys([*before, *after, *(expected or {})])
    return tuple(
        _state_row(key, before, after, expected or {}, accepted_values or {}, key in changed_keys) for key in keys
    )


def _state_row(
    key: str,
    before: JsonObject,
    after: JsonObject,
    expected: Mapping[str, JsonValue],
    accepted_values: Mapping[str, JsonValue],
    is_changed: bool,
) -> StateRow:
    was, now = _value_segments(key, before), _value_segments(key, after)
    if was and now and is_changed:
        diff = diff_json(before[key], after[key])
        was, now = diff.expected, diff.actual
    is_asserted = key in expected
    return StateRow(
        key,
        was,
        now,
        is_changed,
        json_line(expected[key]) if is_asserted else None,
        (
            json_equal(after[key], accepted_values[key])
            if key in after and key in accepted_values
            else key not in accepted_values
        )
        if is_asserted
        else None,
    )


def _value_segments(key: str, state: JsonObject) -> tuple[Segment, ...] | None:
    return (Segment("same", json_line(state[key])),) if key in state else None
