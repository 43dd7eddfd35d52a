"""The diff of one turn for the trial page: aligned calls, arguments by key, text by word.

The alignment is the one of the turn's metrics, which may accept other arguments than the expected ones.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from evaldesk.diff.text_diff import Segment, TextDiff, diff_json, diff_text
from evaldesk.matching import Op, Step, align, json_equal
from evaldesk.model import Event, Expected, JsonObject, JsonValue, Score, ToolCall, TurnRecord
from evaldesk.model.conclusion import counted
from evaldesk.model.json_text import json_line
from evaldesk.model.trial_turns import judges_calls

Outcome: TypeAlias = tuple[ToolCall, Event | None]
"""A call of the agent, and its result."""
Steps: TypeAlias = Sequence[Step]
Reasons: TypeAlias = dict[tuple[int | None, int | None], tuple[str, ...]]
"""The reasons for accepting other arguments, by the places of a pair of calls."""


@dataclass(frozen=True, slots=True)
class ArgRow:
    """One argument: `=` same, `~` another value, `-` missing, `+` not expected; an absent side is None."""

    key: str
    op: Op
    expected: tuple[Segment, ...] | None
    actual: tuple[Segment, ...] | None


@dataclass(frozen=True)
class CallRow:
    """One line of the comparison; places count from 1. Without an assertion `op` is None and only `actual` is set.

    Where the calls of the turn cannot be seen, `op` is None, too, and only `expected` is set.

    `because` has the reasons for accepting different arguments. In an alignment over the conversation, `expected_turn`
    or `actual_turn` is the turn, from 1, of the side in another turn.
    """

    op: Op | None
    expected: ToolCall | None
    actual: ToolCall | None
    expected_place: int | None
    actual_place: int | None
    result: JsonValue = None
    has_result: bool = False
    is_error: bool = False
    duration_ms: float | None = None
    because: tuple[str, ...] = ()
    expected_turn: int | None = None
    actual_turn: int | None = None

    @cached_property
    def args(self) -> tuple[ArgRow, ...]:
        """The arguments by key, compared for the rows that are drawn: a turn may have 10,000."""
        expected, actual = self.expected or self.actual, self.actual or self.expected
        return diff_args_by_key(expected.args, actual.args) if expected and actual else ()

    @property
    def is_accepted(self) -> bool:
        """Whether the call is at its expected place, with different but accepted arguments."""
        return self.op == "~" and bool(self.because)

    @property
    def differs(self) -> bool:
        """Whether the call differs from the expected one."""
        return self.op not in ("=", None) and not self.is_accepted


@dataclass(frozen=True)
class TurnDiff:
    """One turn, expected and actual.

    `is_asserted`: the case asserts the calls of this turn. `reference` is the expected answer, None without one;
    `answer` is the agent's answer, None for an unplayed turn. Not `is_seen`: the agent may have called any tool.
    """

    calls: tuple[CallRow, ...]
    is_asserted: bool
    is_played: bool
    reference: str | None
    answer: str | None
    is_seen: bool = True

    @cached_property
    def text(self) -> TextDiff | None:
        """The diff of the answers; None without a reference."""
        return None if self.reference is None else diff_text(self.reference, self.answer or "")

    @property
    def n_actual_calls(self) -> int:
        """The number of the agent's calls."""
        return sum(row.actual is not None for row in self.calls)

    @property
    def differs(self) -> bool:
        """Whether calls differ from the asserted ones, or the turn was not played."""
        return not self.is_played or any(row.differs for row in self.calls)

    @property
    def summary(self) -> str:
        """The line of the outline: `2 calls, 1 differs`."""
        if not self.is_played:
            return "never played"
        if not self.is_seen:
            return "calls not seen"
        n = self.n_actual_calls
        calls = "no calls" if not n else counted(n, "call")
        if not self.is_asserted:
            return f"{calls}, not asserted"
        words = (("~", "differs", "differ"), ("-", "missing", "missing"), ("+", "extra", "extra"), ("moved",) * 3)
        open_rows = [row for row in self.calls if not row.is_accepted]
        counts = [(sum(row.op == op for row in open_rows), one, many) for op, one, many in words]
        return ", ".join([calls, *(f"{count} {one if count == 1 else many}" for count, one, many in counts if count)])


def turn_diff(expected: Expected | None, record: TurnRecord | None, scores: Sequence[Score] = ()) -> TurnDiff:
    """Compare a turn with the case's expectation; either side may be missing.

    Calls are aligned as the metrics of this turn's `scores` aligned them.
    """
    expected = expected or Expected()
    outcomes = call_outcomes(record)
    is_seen = record is None or not record.hides_calls
    return TurnDiff(
        calls=_call_rows(expected.tool_calls, outcomes, scores) if is_seen else _unseen_rows(expected.tool_calls),
        is_asserted=expected.tool_calls is not None,
        is_played=record is not None,
        reference=expected.reference,
        answer=record.answer if record else None,
        is_seen=is_seen,
    )


def diff_args_by_key(expected: JsonObject, actual: JsonObject) -> tuple[ArgRow, ...]:
    """One row for each key of either side: expected keys in their order, then the extra ones."""
    return tuple(_arg_row(key, expected, actual) for key in dict.fromkeys([*expected, *actual]))


def _arg_row(key: str, expected: JsonObject, actual: JsonObject) -> ArgRow:
    if key not in actual:
        return ArgRow(key, "-", (Segment("del", json_line(expected[key])),), None)
    if key not in expected:
        return ArgRow(key, "+", None, (Segment("ins", json_line(actual[key])),))
    if json_equal(expected[key], actual[key]):
        same = (Segment("same", json_line(expected[key])),)
        return ArgRow(key, "=", same, (Segment("same", json_line(actual[key])),))
    diff = diff_json(expected[key], actual[key])
    return ArgRow(key, "~", diff.expected, diff.actual)


def _call_rows(
    expected: Sequence[ToolCall] | None, outcomes: Sequence[Outcome], scores: Sequence[Score]
) -> tuple[CallRow, ...]:
    if expected is None:
        return tuple(_call_row(None, None, at, (), outcomes) for at in range(len(outcomes)))
    return tuple(row for _, row in aligned_rows(expected, outcomes, scores))


def _unseen_rows(expected: Sequence[ToolCall] | None) -> tuple[CallRow, ...]:
    """The expected calls of a turn whose calls cannot be seen: none of them is missing."""
    return tuple(CallRow(None, call, None, place, None) for place, call in enumerate(expected or (), 1))


def aligned_rows(
    expected: Sequence[ToolCall], outcomes: Sequence[Outcome], scores: Sequence[Score]
) -> list[tuple[Step, CallRow]]:
    """The common alignment of all tool metrics, else the strict one; each step with its row."""
    steps, because = _shared_alignment(expected, [call for call, _ in outcomes], scores)
    rows = [_call_row(*step, expected, outcomes) for step in steps]
    return [(step, replace(row, because=because.get(step[1:], ()))) for step, row in zip(steps, rows, strict=True)]


def _call_row(
    op: Op | None, i: int | None, j: int | None, expected: Sequence[ToolCall], outcomes: Sequence[Outcome]
) -> CallRow:
    expected_call = None if i is None else expected[i]
    actual_call, outcome = (None, None) if j is None else outcomes[j]
    return CallRow(
        op=op,
        expected=expected_call,
        actual=actual_call,
        expected_place=None if i is None else i + 1,
        actual_place=None if j is None else j + 1,
        result=outcome.result if outcome else None,
        has_result=outcome is not None,
        is_error=bool(outcome and outcome.is_error),
        duration_ms=outcome.duration_ms if outcome else None,
    )


def call_outcomes(record: TurnRecord | None) -> list[Outcome]:
    """Each call with its result: by id, else the first unused result of that tool."""
    events = record.own_events if record else ()
    results: defaultdict[tuple[str | None, str], deque[Event]] = defaultdict(deque)
    for event in events:
        if event.kind == "tool_result" and event.call:
            results[_key(event.call)].append(event)
    calls = [event.call for event in events if event.kind == "tool_call" and event.call]
    return [(call, free.popleft() if (free := results[_key(call)]) else None) for call in calls]


def _key(call: ToolCall) -> tuple[str | None, str]:
    return call.id, call.name if call.id is None else ""


_OPS = frozenset({"=", "~", "-", "+", "moved"})


def _shared_alignment(
    expected: Sequence[ToolCall], actual: Sequence[ToolCall], scores: Sequence[Score]
) -> tuple[Steps, Reasons]:
    details = [score.details for score in scores if judges_calls(score)]
    pairs = [(each.get("steps"), each.get("accepted")) for each in details]
    if not pairs or any(each != pairs[0] for each in pairs):
        return align(expected, actual), {}
    steps = _steps(pairs[0][0])
    # Steps of another tool, or of a user's own metric, may be of other calls.
    for calls, places in ((expected, [i for _, i, _ in steps]), (actual, [j for _, _, j in steps])):
        if sorted(at for at in places if at is not None) != list(range(len(calls))):
            return align(expected, actual), {}
    return steps, _reasons(pairs[0][1])


def _steps(value: Any) -> list[Step]:
    if not isinstance(value, list):
        return []
    return [(op, i, j) for op, i, j in (each for each in value if _is_step(each))]


def _is_step(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3 or value[0] not in _OPS:
        return False
    return all(index is None or type(index) is int for index in value[1:])


def _reasons(value: Any) -> Reasons:
    reasons: Reasons = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("because"), list):
            i, j = each.get("expected"), each.get("actual")
            if isinstance(i, int) and isinstance(j, int):
                reasons[i, j] = tuple(map(str, each["because"]))
    return reasons
