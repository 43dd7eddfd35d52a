"""The pinned turns of a case, in the key `evaldesk_pinned` of its object in an eval set file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

from evaldesk.errors import NAME_LIMIT, REASON_LIMIT, UsageError
from evaldesk.model import Case, JsonObject, JsonValue, Turn, TurnRecord
from evaldesk.model.pinned import MOST_PINNED, PINNED
from evaldesk.model.transcript import ARTIFACTS
from evaldesk.wire import converted, plain_json

_KEYS = ("query", "events", "state_before", "state_after", "stop_reason", "captures", "unseen", "media")
_WITHOUT_EFFECT = frozenset({"usage", "log"})
"""Kinds of events that no agent gets as its history."""


def pinned_turns(case: Case) -> tuple[TurnRecord, ...]:
    """The recorded turns with which trials of the case begin. Raises UsageError that names the turn at fault.

    Messages are those of the conversation; a scenario has none, so its turns name theirs.
    """
    value = case.extra.get(PINNED)
    if value is None:
        return ()
    raw_turns = value.get("turns") if isinstance(value, Mapping) else None
    if not isinstance(raw_turns, list | tuple) or not raw_turns:
        raise UsageError(f'{PINNED} must be an object with a list of turns, such as {{"turns": [{{"events": []}}]}}')
    if len(raw_turns) > MOST_PINNED:
        raise UsageError(f"{PINNED} has {len(raw_turns):,} turns; at most {MOST_PINNED} can be pinned")
    if case.scenario is None and len(raw_turns) >= len(case.turns):
        n = len(raw_turns)
        raise UsageError(
            f"{PINNED} pins {n} turn{'s'[: n != 1]} and the conversation has {len(case.turns)}, so none is left to play"
        )
    records: list[TurnRecord] = []
    state: JsonObject = case.initial_state
    for number, raw in enumerate(raw_turns, 1):
        turn = case.turns[number - 1] if case.scenario is None else None
        record = _read_turn(raw, number, turn, state)
        state = record.state_after
        records.append(record)
    return tuple(records)


def with_pinned_turns(case: Case, turns: Sequence[TurnRecord]) -> Case:
    """The case whose first turns are these, with nothing expected of them; without any it pins none."""
    extra = {key: value for key, value in case.extra.items() if key != PINNED}
    if not turns:
        return replace(case, extra=extra)
    is_scripted = case.scenario is None
    state: JsonObject = case.initial_state
    raw_turns: list[JsonValue] = []
    for record in turns:
        raw_turns.append(_write_turn(record, state, is_scripted=is_scripted))
        state = record.state_after
    pinned_messages = tuple(Turn(record.query, media=record.media) for record in turns)
    messages = (*pinned_messages, *case.turns[len(turns) :]) if is_scripted else ()
    return replace(case, turns=messages, extra={**extra, PINNED: {"turns": raw_turns}})


def _read_turn(raw: object, number: int, turn: Turn | None, state: JsonObject) -> TurnRecord:
    place = f"{PINNED}, turn {number}"
    if not isinstance(raw, Mapping):
        raise UsageError(f"{place}: expected an object, got {type(raw).__name__}")
    unknown_key = next((str(key) for key in raw if key not in _KEYS), None)
    if unknown_key is not None:
        raise UsageError(f"{place}: unknown key {unknown_key[:NAME_LIMIT]!r}; there are {', '.join(_KEYS)}")
    if turn is None and not isinstance(raw.get("query"), str):
        raise UsageError(f"{place}: a case with a scenario needs the message of the turn as its query")
    own_query = {"query": turn.query} if turn else {}
    try:
        record = converted({"state_before": dict(state), **raw, **own_query}, TurnRecord)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: {str(error)[:REASON_LIMIT]}") from None
    if "state_after" not in raw:
        record = replace(record, state_after=record.state_before)
    return replace(record, media=turn.media) if turn else record


def _write_turn(record: TurnRecord, state: JsonObject, *, is_scripted: bool) -> dict[str, JsonValue]:
    """The turn without times and costs, and without values that are those before it."""
    events = tuple(
        replace(event, at_ms=0.0, duration_ms=None)
        for event in record.events
        if not event.is_partial and (event.kind not in _WITHOUT_EFFECT or event.author == ARTIFACTS)
    )
    lean_record = TurnRecord(
        record.query,
        events,
        record.state_before,
        record.state_after,
        stop_reason=record.stop_reason,
        captures=record.captures,
        unseen=record.unseen,
        media=record.media,
    )
    raw: dict[str, Any] = {name: value for name, value in _sparse(lean_record).items() if name in _KEYS}
    raw.setdefault("events", [])
    for key, before in (("state_before", state), ("state_after", record.state_before)):
        raw.pop(key, None)
        if getattr(record, key) != before:
            raw[key] = plain_json(dict(getattr(record, key)))
    if is_scripted:
        raw.pop("query", None)
        raw.pop("media", None)
    return raw


def _sparse(value: Any) -> Any:
    """The value as plain JSON; fields of our own values that have their default are left out."""
    if is_dataclass(value):
        pairs = ((each.name, getattr(value, each.name), _default(each)) for each in fields(value))
        return {name: _sparse(own) for name, own, default in pairs if own != default}
    if isinstance(value, Mapping):
        return {key: _sparse(each) for key, each in value.items()}
    return [_sparse(each) for each in value] if isinstance(value, list | tuple) else value


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return None if each.default is MISSING else each.default
