"""Accept what a trial did as what its case expects: a change for each difference, and the case with some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from evaldesk.diff.state import state_diff
from evaldesk.diff.turn_diff import CallRow, turn_diff
from evaldesk.matching import json_equal
from evaldesk.model import Case, Expected, JsonObject, Score, ToolCall, Transcript, TurnRecord
from evaldesk.model.json_text import json_line

Part: TypeAlias = Literal["answer", "argument", "call", "calls", "state"]
"""What a change writes: an answer, an argument, one call more or less, all calls of a turn, a key of the state."""


@dataclass(frozen=True, slots=True)
class Acceptable:
    """One difference between a case and a trial of it; `key` is its name within the case.

    `expected` and `actual` are text: an answer as it is, everything else as JSON on one line. None is an absent side.
    """

    key: str
    part: Part
    place: str
    expected: str | None
    actual: str | None


def acceptable(case: Case, transcript: Transcript, scores: Collection[Score] = ()) -> tuple[Acceptable, ...]:
    """Every difference that the case could take over, in the order of the turns, the final state last.

    A turn that asserts nothing, or was not played, has none; nor has a call that its metric accepts as it is.
    """
    found: list[Acceptable] = []
    for index, record in enumerate(transcript.turns[: len(case.turns)]):
        of_turn = [score for score in scores if score.turn == index]
        found += _of_turn(index, case.turns[index].expected, record, of_turn)
    if case.final_state is not None and transcript.turns:
        found += [
            Acceptable(
                f"state.{key}",
                "state",
                f"Final state, {key}",
                json_line(case.final_state[key]),
                json_line(transcript.final_state[key]) if key in transcript.final_state else None,
            )
            for key in _differing_state(case.final_state, transcript.final_state)
        ]
    return tuple(found)


def accepted(case: Case, transcript: Transcript, keys: Collection[str], scores: Collection[Score] = ()) -> Case:
    """The case with the changes of these keys written into its expectations; everything else stays as it is."""
    turns = list(case.turns)
    for index, record in enumerate(transcript.turns[: len(turns)]):
        expected = turns[index].expected
        of_turn = [score for score in scores if score.turn == index]
        if f"{index + 1}.answer" in keys and expected.reference is not None:
            expected = replace(expected, reference=record.answer or "")
        if expected.tool_calls is not None:
            expected = replace(expected, tool_calls=_accepted_calls(index, expected, record, of_turn, keys))
        turns[index] = replace(turns[index], expected=expected)
    return replace(case, turns=tuple(turns), final_state=_accepted_state(case.final_state, transcript, keys))


def _of_turn(index: int, expected: Expected, record: TurnRecord, scores: list[Score]) -> Iterator[Acceptable]:
    turn, words = f"{index + 1}", f"Turn {index + 1}"
    rows = _rows(expected, record, scores)
    if any(row.op == "moved" for row in rows):
        actual = [row.actual for row in sorted(rows, key=lambda row: row.actual_place or 0) if row.actual]
        yield Acceptable(
            f"{turn}.calls", "calls", f"{words}, calls", _calls_line(expected.tool_calls or ()), _calls_line(actual)
        )
    else:
        for number, row in enumerate(rows, start=1):
            yield from _of_call(f"{turn}.{number}", words, row)
    if expected.reference is not None and expected.reference != (record.answer or ""):
        yield Acceptable(f"{turn}.answer", "answer", f"{words}, answer", expected.reference, record.answer or "")


def _rows(expected: Expected, record: TurnRecord, scores: list[Score]) -> tuple[CallRow, ...]:
    if expected.tool_calls is None:
        return ()
    own = tuple(event for event in record.events if not event.within)
    return turn_diff(expected, replace(record, events=own), scores).calls


def _of_call(key: str, words: str, row: CallRow) -> Iterator[Acceptable]:
    if row.op == "+" and row.actual:
        yield Acceptable(key, "call", f"{words}, {row.actual.name}", None, _call_line(row.actual))
    if row.op == "-" and row.expected:
        yield Acceptable(key, "call", f"{words}, {row.expected.name}", _call_line(row.expected), None)
    if row.op == "~" and not row.because and row.expected and row.actual:
        for argument in _differing_args(row.expected.args, row.actual.args):
            yield Acceptable(
                f"{key}.{argument}",
                "argument",
                f"{words}, {row.expected.name}, {argument}",
                json_line(row.expected.args[argument]) if argument in row.expected.args else None,
                json_line(row.actual.args[argument]) if argument in row.actual.args else None,
            )


def _differing_args(expected: JsonObject, actual: JsonObject) -> list[str]:
    return [
        key
        for key in dict.fromkeys([*expected, *actual])
        if key not in expected or key not in actual or not json_equal(expected[key], actual[key])
    ]


def _differing_state(expected: JsonObject, actual: JsonObject) -> list[str]:
    """The keys that the case asserts and the session does not have so; what it has beyond them is not asserted."""
    return [change.key for change in state_diff(expected, actual) if change.key in expected]


def _accepted_calls(
    index: int, expected: Expected, record: TurnRecord, scores: list[Score], keys: Collection[str]
) -> tuple[ToolCall, ...]:
    rows = _rows(expected, record, scores)
    if f"{index + 1}.calls" in keys:
        return tuple(
            _as_expected(row.actual)
            for row in sorted(rows, key=lambda row: row.actual_place or 0)
            if row.actual is not None
        )
    if any(row.op == "moved" for row in rows):
        return expected.tool_calls or ()
    found: list[ToolCall] = []
    for number, row in enumerate(rows, start=1):
        key = f"{index + 1}.{number}"
        if key in keys:
            found += [_as_expected(row.actual)] if row.actual else []
        elif row.expected and row.actual:
            found.append(replace(row.expected, args=_accepted_args(row.expected.args, row.actual.args, key, keys)))
        elif row.expected:
            found.append(row.expected)
    return tuple(found)


def _accepted_args(expected: JsonObject, actual: JsonObject, key: str, keys: Collection[str]) -> JsonObject:
    wanted = [name for name in _differing_args(expected, actual) if f"{key}.{name}" in keys]
    kept = {name: value for name, value in expected.items() if name not in wanted or name in actual}
    return {**kept, **{name: actual[name] for name in wanted if name in actual}}


def _accepted_state(expected: JsonObject | None, transcript: Transcript, keys: Collection[str]) -> JsonObject | None:
    if expected is None or not transcript.turns:
        return expected
    actual = transcript.final_state
    wanted = [key for key in _differing_state(expected, actual) if f"state.{key}" in keys]
    return {
        key: actual[key] if key in wanted else value
        for key, value in expected.items()
        if key not in wanted or key in actual
    }


def _as_expected(call: ToolCall) -> ToolCall:
    """The call without what belongs to one trial only."""
    return ToolCall(call.name, call.args)


def _call_line(call: ToolCall) -> str:
    return json_line({"name": call.name, "args": call.args})


def _calls_line(calls: Collection[ToolCall]) -> str:
    return json_line([{"name": call.name, "args": call.args} for call in calls])
