"""Values that a case accepts beside the expected ones, in its key `also_accepted`; the one place that reads it.

Each entry is of one turn, which counts from 1, and of an argument of a tool or of the answer:

    {"turn": 1, "tool": "book", "argument": "city", "any_of": ["Lyon"]}
    {"turn": 1, "tool": "book", "argument": "price", "within": 0.5}
    {"turn": 1, "tool": "book", "argument": "note", "ignore": true}
    {"turn": 2, "answer": "It is in Lyon."}

Where the turn expects the tool more than once, `call` names one of these calls, from 0; without it all are meant.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from evaldesk.errors import UsageError
from evaldesk.matching.alignment import Step, align
from evaldesk.matching.json_equality import differing_keys, json_equal
from evaldesk.matching.rule import CallRule
from evaldesk.matching.tolerance import Tolerance
from evaldesk.model import Case, Expected, JsonObject, JsonValue, ToolCall, Transcript, TurnRecord

# A key of the case, since ADK refuses unknown keys in turns: decision 155.
ALSO_ACCEPTED = "also_accepted"
_KINDS = ("any_of", "within", "ignore")

Origins: TypeAlias = Sequence[tuple[int | None, Sequence[int | None]]]
"""For each turn of a case that was changed, its place before, and those of its expected calls; None is a new one."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Accepted values of an argument beside its expected one, or another answer, in one turn; `turn` counts from 1.

    `call` counts the expected calls of the tool in the turn from 0; None is each of them.
    """

    turn: int
    tool: str = ""
    argument: str = ""
    any_of: tuple[JsonValue, ...] = ()
    within: float | None = None
    is_ignored: bool = False
    answer: str | None = None
    call: int | None = None

    @property
    def place(self) -> tuple[object, ...]:
        """Turn, call, tool and argument of the entry."""
        return (self.turn, self.tool, self.argument, self.call) if self.answer is None else (self.turn, self.answer)


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """An expected call that a call of the agent was taken for, and why; both places count from 0."""

    expected: int
    actual: int
    because: tuple[str, ...]


def read_allowances(case: Case) -> tuple[Allowance, ...]:
    """The accepted alternatives of the case. Raises UsageError for an unreadable entry."""
    raw = case.extra.get(ALSO_ACCEPTED)
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise UsageError(f"{ALSO_ACCEPTED} must be a list, got {type(raw).__name__}")
    return tuple(_allowance(f"{ALSO_ACCEPTED}[{at}]", each, len(case.turns)) for at, each in enumerate(raw))


def with_allowances(case: Case, more: Iterable[Allowance]) -> Case:
    """The case with these accepted as well; a wider tolerance and further values join its own.

    A call is named only where the turn expects its tool more than once.
    """
    allowances: list[Allowance] = []
    for each in (*read_allowances(case), *more):
        is_one = len(_places(case.turns[each.turn - 1].expected.tool_calls or (), each.tool)) == 1
        allowances.append(replace(each, call=None) if is_one and each.call == 0 else each)
    return _with(case, _merge(allowances))


def allowances_after_edit(
    allowances: Iterable[Allowance], before: Case, after: Case, origins: Origins
) -> list[Allowance]:
    """The alternatives of `before` with the turn and call numbers of `after`; those of a removed call go."""
    new_allowances: list[Allowance] = []
    for each in allowances:
        for at, (turn, calls) in enumerate(origins):
            if turn != each.turn - 1:
                continue
            if each.call is None:
                new_allowances.append(replace(each, turn=at + 1))
                continue
            old_places = _places(before.turns[turn].expected.tool_calls or (), each.tool)[each.call : each.call + 1]
            new_places = _places(after.turns[at].expected.tool_calls or (), each.tool)
            new_allowances += [
                replace(each, turn=at + 1, call=k) for k, i in enumerate(new_places) if calls[i] in old_places
            ]
    return new_allowances


def renumber_allowances(before: Case, after: Case, origins: Origins) -> Case:
    """The changed case with the numbers of turns and calls in its key updated; an unreadable key stays."""
    try:
        had = read_allowances(before)
    except UsageError:
        return after
    has = allowances_after_edit(had, before, after, origins)
    return after if has == [*had] else with_allowances(_with(after, has), ())


def _with(case: Case, allowances: Sequence[Allowance]) -> Case:
    others = {key: value for key, value in case.extra.items() if key != ALSO_ACCEPTED}
    if not allowances:
        return replace(case, extra=others) if ALSO_ACCEPTED in case.extra else case
    return replace(case, extra={**case.extra, ALSO_ACCEPTED: [_write_allowance(each) for each in allowances]})


def _merge(allowances: Iterable[Allowance]) -> list[Allowance]:
    """One of each place."""
    by_place: dict[tuple[object, ...], Allowance] = {}
    for each in allowances:
        by_place[each.place] = _join(by_place[each.place], each) if each.place in by_place else each
    return [*by_place.values()]


def _places(calls: Sequence[ToolCall], tool: str) -> list[int]:
    """Where the tool stands among the calls."""
    return [at for at, call in enumerate(calls) if call.name == tool]


def apply_allowances(case: Case, transcript: Transcript) -> tuple[Case, Mapping[int, Sequence[AcceptedCall]]]:
    """The case as it is compared with a trial: accepted alternatives of the trial replace expected values.

    And for each turn, from 0, the calls that were taken for expected ones. A case without the key is given back itself.
    Raises UsageError where the key cannot be read.
    """
    by_turn: dict[int, list[Allowance]] = {}
    for each in read_allowances(case):
        by_turn.setdefault(each.turn - 1, []).append(each)
    if not by_turn:
        return case, {}
    turns, accepted_calls = list(case.turns), dict[int, Sequence[AcceptedCall]]()
    for at, allowances in by_turn.items():
        if at < len(transcript.turns):
            expected, turn_calls = _apply_to_turn(turns[at].expected, transcript.turns[at], allowances)
            turns[at] = replace(turns[at], expected=expected)
            if turn_calls:
                accepted_calls[at] = turn_calls
    return replace(case, turns=tuple(turns)), accepted_calls


def steps_of(expected: Expected, record: TurnRecord, accepted_calls: Sequence[AcceptedCall]) -> tuple[Step, ...]:
    """The alignment of a turn in which the taken calls stand beside those they were taken for."""
    calls = list(expected.tool_calls or ())
    actual_calls = record.judged_calls
    for each in accepted_calls:
        calls[each.expected] = actual_calls[each.actual]
    pairs = {(each.expected, each.actual) for each in accepted_calls}
    return tuple(
        ("~", i, j) if op == "=" and (i, j) in pairs else (op, i, j) for op, i, j in align(calls, actual_calls)
    )


def _apply_to_turn(
    expected: Expected, record: TurnRecord, allowances: Sequence[Allowance]
) -> tuple[Expected, tuple[AcceptedCall, ...]]:
    answers = [each.answer for each in allowances if each.answer is not None]
    if answers and expected.reference is not None:
        expected = replace(expected, reference=_nearest([expected.reference, *answers], record.answer or ""))
    if not expected.tool_calls:
        return expected, ()
    calls, actual_calls, accepted_calls = list(expected.tool_calls), record.judged_calls, []
    own = [_of_call(at, calls, allowances) for at in range(len(calls))]
    for op, i, j in align(calls, actual_calls, rule=[CallRule(tolerance=_tolerance(each)) for each in own]):
        if op == "=" or i is None or j is None:
            continue
        args, reasons = _taken_args(calls[i], actual_calls[j], own[i])
        calls[i] = replace(calls[i], args=args)
        if reasons:
            accepted_calls.append(AcceptedCall(i, j, tuple(f"{name} {reason}" for name, reason in reasons.items())))
    return replace(expected, tool_calls=tuple(calls)), tuple(accepted_calls)


def _of_call(at: int, calls: Sequence[ToolCall], allowances: Sequence[Allowance]) -> list[Allowance]:
    """The alternatives of this expected call, one for each argument."""
    tool = calls[at].name
    number = _places(calls, tool).index(at)
    mine = [each for each in allowances if each.answer is None and each.tool == tool and each.call in (None, number)]
    return _merge(replace(each, call=None) for each in mine)


def _taken_args(wish: ToolCall, call: ToolCall, allowances: Sequence[Allowance]) -> tuple[JsonObject, dict[str, str]]:
    """The expected arguments with those of the call that are accepted, and why each is."""
    args, reasons = dict(wish.args), dict[str, str]()
    differing = differing_keys(wish.args, call.args)
    for each in allowances:
        name = each.argument
        if each.is_ignored and name in differing:
            reasons[name] = "is ignored"
        elif name in differing and name in wish.args and name in call.args:
            reason = _tolerance([each]).reason(wish.name, name, wish.args[name], call.args[name])
            if reason:
                reasons[name] = reason
    for name in reasons:
        if name in call.args:
            args[name] = call.args[name]
        else:
            args.pop(name, None)
    return args, reasons


def _tolerance(allowances: Sequence[Allowance]) -> Tolerance:
    return Tolerance(
        any_of={f"{each.tool}/{each.argument}": each.any_of for each in allowances if each.any_of},
        tolerances={f"{each.tool}/{each.argument}": each.within for each in allowances if each.within is not None},
    )


def _nearest(references: Sequence[str], answer: str) -> str:
    """The first reference that is the answer, else the first that shares most of its words."""
    answer_words = Counter(answer.split())

    def likeness(reference: str) -> float:
        words = Counter(reference.split())
        total = sum(words.values()) + sum(answer_words.values())
        return 1.0 if reference == answer else 2 * sum((words & answer_words).values()) / (total + 1)

    return max(references, key=likeness)


def _join(one: Allowance, other: Allowance) -> Allowance:
    values = [*one.any_of, *(value for value in other.any_of if not any(json_equal(value, had) for had in one.any_of))]
    within = [each for each in (one.within, other.within) if each is not None]
    return replace(
        one,
        any_of=tuple(values),
        within=max(within) if within else None,
        is_ignored=one.is_ignored or other.is_ignored,
    )


def _write_allowance(each: Allowance) -> dict[str, JsonValue]:
    if each.answer is not None:
        return {"turn": each.turn, "answer": each.answer}
    value: dict[str, JsonValue] = {"turn": each.turn, "tool": each.tool}
    if each.call is not None:
        value["call"] = each.call
    value["argument"] = each.argument
    if each.any_of:
        value["any_of"] = [*each.any_of]
    if each.within is not None:
        value["within"] = each.within
    if each.is_ignored:
        value["ignore"] = True
    return value


def _allowance(place: str, raw: JsonValue, n_turns: int) -> Allowance:
    if not isinstance(raw, Mapping):
        raise UsageError(f"{place} must be an object, got {type(raw).__name__}")
    turn = raw.get("turn")
    if type(turn) is not int or not 1 <= turn <= n_turns:
        raise UsageError(f"{place}.turn must be the number of a turn, 1 to {n_turns}, got {turn!r:.80}")
    unknown = sorted(raw.keys() - {"turn", "tool", "call", "argument", "answer", *_KINDS})
    if unknown:
        raise UsageError(f"{place} has the unknown key {unknown[0]!r:.80}; it may have {', '.join(_KINDS)} or answer")
    if "answer" in raw:
        if len(raw) > 2 or not isinstance(raw["answer"], str):
            raise UsageError(f"{place}.answer must be a text, alone with its turn")
        return Allowance(turn, answer=raw["answer"])
    tool, argument, values = raw.get("tool"), raw.get("argument"), raw.get("any_of", [])
    if not isinstance(tool, str) or not isinstance(argument, str):
        raise UsageError(f"{place} must name a tool and an argument, or an answer")
    call = raw.get("call")
    if "call" in raw and (type(call) is not int or call < 0):
        raise UsageError(
            f"{place}.call must be the number of an expected call of {tool!r:.80}, from 0, got {call!r:.80}"
        )
    within, ignored = _distance(f"{place}.within", raw.get("within")), raw.get("ignore", False)
    if not isinstance(values, list):
        raise UsageError(f"{place}.any_of must be a list of values, got {type(values).__name__}")
    if not isinstance(ignored, bool):
        raise UsageError(f"{place}.ignore must be true or false, got {ignored!r:.80}")
    if not (values or within is not None or ignored):
        raise UsageError(f"{place} accepts nothing; it needs one of {', '.join(_KINDS)}")
    return Allowance(turn, tool, argument, tuple(values), within, ignored, call=call if type(call) is int else None)


def _distance(place: str, value: JsonValue) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise UsageError(f"{place} must be a number from 0 up, got {value!r:.80}")
    return value
