"""A row of an OpenHands benchmark, its EvalOutput, as one turn, whether it was played or imported.

The text of the row stays beside the turn, and is written out again. (OpenHands evaluation/utils/shared.py,
openhands/llm/metrics.py)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, cast

from evaldesk.errors import BadNumberError, FormatError
from evaldesk.integrations.openhands.recorded_events import read_history, response_times
from evaldesk.model import ErrorRecord, Event, JsonObject, JsonValue, StopReason, TurnRecord, Usage
from evaldesk.model.transcript import BOUNDS, artefact, report
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import (
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    text_of,
    wrong_value,
)
from evaldesk.transcripts.messages.turns import TurnEvents
from evaldesk.transcripts.recorded import ends_in_calls, known_cost, known_time, whole_number
from evaldesk.transcripts.recorded_ends import bound_of
from evaldesk.wire import to_json

FORM: Final = "openhands"
"""The `reports.artefact` name of the text of a row."""

USUAL = ("resolved", "success", "passed", "correct", "result", "score", "reward")
"""Keys by which benchmarks say that an instance was solved, in the order in which they are looked for."""

MAX_SUMMARY = 2_000

_COUNTS = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning")


def is_row(value: JsonValue) -> bool:
    """Whether this is an EvalOutput, or the row of the resolver of issues in its place."""
    return isinstance(value, dict) and ("test_result" in value or {"issue", "history"} <= set(value))


def row_query(place: JsonPosition, row: dict[str, Any]) -> str:
    """The task: the instruction, else the first words of the user. Raises FormatError."""
    instruction = read_optional_text(place.at("instruction"), row.get("instruction"))
    if instruction:
        return instruction
    messages = read_history(place.at("history"), row.get("history") or [], Notes())
    return next((message.text for message in messages if message.speaker == "user"), "")


def row_turn(place: JsonPosition, row: dict[str, Any], text: str, notes: Notes) -> TurnRecord:
    """The turn that the row at `place` is, with `text` as its artefact. Raises FormatError."""
    query = row_query(place, row)
    turn = _history(place, row, query, notes)
    events = [Event("user_message", author="user", text=query), *_events(place, row, text, turn, {})]
    reason: StopReason = "interrupted" if ends_in_calls(turn.events) else "answered"
    if events[-1].error:
        error = events[-1].error
        reason = cast("StopReason", error.kind) if error.kind in BOUNDS else "error"
        if error.kind in BOUNDS:
            events[-1] = Event("log", text=error.message)
    return TurnRecord(query, tuple(events), duration_ms=turn.now_ms, stop_reason=reason)


def row_events(place: JsonPosition, row: dict[str, Any], text: str, query: str, more: JsonObject) -> Iterator[Event]:
    """The events of an agent that gave this row, after the message `query`.

    `more` is added to the test result. A row that cannot be read is told as an error, with its text.
    """
    try:
        yield from _events(place, row, text, _history(place, row, query, Notes()), more)
    except FormatError as error:
        yield artefact(FORM, text)
        yield Event("error", error=ErrorRecord("bad_output", f"the result of process_instance cannot be read: {error}"))


def test_result(row: Mapping[str, Any]) -> dict[str, Any]:
    """The test result of a row; the resolver, and others without one, say the outcome beside it."""
    result = row.get("test_result")
    reported = {key: row[key] for key in USUAL if key in row}
    if result is None:
        return reported
    return reported | (result if isinstance(result, dict) else {"value": result})


def read_usages(place: JsonPosition, raw: dict[str, Any]) -> tuple[Usage, ...]:
    """One usage for each model call where they are listed and their costs add up to the total, else one for all.

    The total that the metrics state wins over the sum of its parts; a cost of 0 for tokens is unknown. Raises
    FormatError for a cost that no cost can be, BadNumberError for tokens.
    """
    return tuple(usage for _, usage in _usages(place, raw))


def _usages(place: JsonPosition, raw: dict[str, Any]) -> list[tuple[str, Usage]]:
    """As `read_usages`, each of one call with the id of its response."""
    total = _cost(place.at("accumulated_cost"), raw.get("accumulated_cost")) or None
    calls = read_list(place.at("token_usages"), raw.get("token_usages") or [], read_mapping)
    shares = read_list(place.at("costs"), raw.get("costs") or [], _share)
    known_shares = [share for share in shares if share]
    cost = total or (sum(known_shares) if known_shares and len(known_shares) == len(shares) else None)
    is_shared = len(known_shares) == len(shares) == len(calls) and _is_sum(cost, known_shares)
    if calls and (is_shared or cost is None):
        took = _latencies(place.at("response_latencies"), raw.get("response_latencies"))
        names = [str(call.get("response_id") or "") for call in calls]
        each = zip(names, calls, known_shares if is_shared else [None] * len(calls), strict=True)
        return [(name, replace(_usage(call, share), duration_ms=took.get(name, 0.0))) for name, call, share in each]
    stated = raw.get("accumulated_token_usage")
    total_usage = _usage(stated if isinstance(stated, dict) else {}, cost)
    if not (total_usage.tokens_in or total_usage.tokens_out):
        parts = [_usage(call) for call in calls]
        counts = {name: sum(getattr(each, name) for each in parts) for name in _COUNTS}
        total_usage = Usage(parts[0].model if parts else total_usage.model, cost=cost, **counts)
    return [("", total_usage)] if cost is not None or total_usage.tokens_in or total_usage.tokens_out else []


def _latencies(place: JsonPosition, raw: Any) -> dict[str, float]:
    """How long the model took for each response, in milliseconds by its id; of a wrong number nothing is known."""
    rows = [each for each in raw if isinstance(each, dict)] if isinstance(raw, list) else []
    pairs = ((each.get("response_id"), known_time(place, each.get("latency"), Notes())) for each in rows)
    return {name: 1000 * seconds for name, seconds in pairs if isinstance(name, str) and name and seconds}


def _history(place: JsonPosition, row: dict[str, Any], query: str, notes: Notes) -> TurnEvents:
    """The history as one turn: messages of the harness as the user after the first one are remarks."""
    turn = TurnEvents()
    messages = read_history(place.at("history"), row.get("history") or [], notes)
    query_texts = {query.strip(), str(row.get("instruction") or "").strip()}
    first = next((message for message in messages if message.speaker == "user"), None)
    for message in messages:
        if message.speaker != "user":
            turn.add(message)
        elif message is not first or message.text.strip() not in query_texts:
            turn.remark("user", message.text, message.at_ms)
    return turn


def _events(place: JsonPosition, row: dict[str, Any], text: str, turn: TurnEvents, more: JsonObject) -> Iterator[Event]:
    yield artefact(FORM, text)
    reason = read_optional_text(place.at("error"), row.get("error"))
    error = ErrorRecord(bound_of(reason) or "instance_error", reason) if reason else None
    metrics = read_optional_mapping(place.at("metrics"), row.get("metrics")) or {}
    events, times = turn.events, response_times(place.at("history"), row.get("history") or [])
    try:
        events = _with_usages(turn, _usages(place.at("metrics"), metrics), times)
    except FormatError as wrong:
        error = error or ErrorRecord("bad_metrics", f"{wrong.path or place.at('metrics').path}: {wrong.reason}")
    except BadNumberError as wrong:
        error = error or ErrorRecord("bad_metrics", f"metrics: {wrong}")
    yield from events
    result = {**test_result(row), **more}
    if result and not any(event.kind == "agent_message" for event in turn.events):
        yield Event("agent_message", text=to_json(result).decode()[:MAX_SUMMARY], at_ms=turn.now_ms)
    yield replace(report({"test_result": result}), at_ms=turn.now_ms)
    if error:
        yield Event("error", error=error, at_ms=turn.now_ms)


def _with_usages(turn: TurnEvents, usages: list[tuple[str, Usage]], times: Mapping[str, float]) -> list[Event]:
    """The events with each usage before the actions of its response; usages of unknown responses are last."""
    events = [*turn.events]
    for name, usage in usages:
        at, at_ms = len(events), turn.now_ms
        if name in times and turn.began_ms is not None:
            at_ms = min(max(round(times[name] - turn.began_ms, 3), 0.0), at_ms)
            at = bisect_left(events, at_ms, key=attrgetter("at_ms"))
        events.insert(at, Event("usage", usage=usage, at_ms=at_ms))
    return events


def _usage(raw: dict[str, Any], cost: float | None = None) -> Usage:
    return Usage(
        text_of(raw.get("model")) or "unknown",
        tokens_in=whole_number(raw.get("prompt_tokens"), "prompt_tokens"),
        tokens_out=whole_number(raw.get("completion_tokens"), "completion_tokens"),
        cost=cost,
        tokens_cached=whole_number(raw.get("cache_read_tokens"), "cache_read_tokens"),
        tokens_reasoning=whole_number(raw.get("reasoning_tokens"), "reasoning_tokens"),
    )


def _share(place: JsonPosition, raw: Any) -> float | None:
    """The cost of a call: a number in older files, an object with a `cost` in newer ones."""
    return _cost(place, raw.get("cost") if isinstance(raw, dict) else raw)


def _cost(place: JsonPosition, raw: Any) -> float | None:
    try:
        cost = known_cost(raw)
    except BadNumberError:
        cost = None
    if cost is None and raw is not None:
        raise wrong_value(place, raw, "a cost in US dollars, 0 or more")
    return cost


def _is_sum(total: float | None, parts: list[float]) -> bool:
    return total is not None and abs(total - sum(parts)) <= 1e-6 * max(1.0, total)
