"""Values that a case accepts beside the expected ones, in its key `also_accepted`; the one place that reads it.

Each entry is of one turn, which counts from 1, and of an argument of a tool or of the answer, or of a key of the final
state:

    {"turn": 1, "tool": "book", "argument": "city", "any_of": ["Lyon"]}
    {"turn": 1, "tool": "book", "argument": "price", "within": 0.5}
    {"turn": 1, "tool": "book", "argument": "note", "ignore": true}
    {"turn": 2, "answer": "It is in Lyon."}
    {"turn": 2, "answer_pattern": "It is \\d+ o'clock\\."}
    {"state": "order", "at": "/created", "later": true}
    {"state": "timer_start", "later": "start"}

Where the turn expects the tool more than once, `call` names one of these calls, from 0; without it all are meant.
`at` is a JSON pointer to a part of the argument or of the value of the key.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from evaldesk.errors import UsageError
from evaldesk.matching.alignment import Step, align
from evaldesk.matching.json_equality import json_equal
from evaldesk.matching.json_pointer import ABSENT, part_at, pointer_steps, with_part
from evaldesk.matching.moments import is_after_start, is_later
from evaldesk.matching.rule import CallRule
from evaldesk.matching.tolerance import Tolerance, check_pattern, has_match
from evaldesk.matching.value_types import VALUE_TYPES, is_of_type
from evaldesk.model import Case, Expected, JsonObject, JsonValue, ToolCall, Transcript, TurnRecord

# A key of the case, since ADK refuses unknown keys in turns: decision 155.
ALSO_ACCEPTED = "also_accepted"
_KINDS = ("any_of", "within", "type", "pattern", "later", "ignore")
AFTER_START = "start"
"""The value of `later` for a time from the start of the trial on."""

Origins: TypeAlias = Sequence[tuple[int | None, Sequence[int | None]]]
"""For each turn of a case that was changed, its place before, and those of its expected calls; None is a new one."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Accepted values of an argument, of a key of the final state or of an answer beside the expected one.

    `turn` counts from 1, and is 0 for the state. `call` counts the expected calls of the tool in the turn from 0; None
    is each of them. `at` is a pointer into the value. `is_later` accepts a time from the expected one on,
    `is_after_start` one from the start of the trial on.
    """

    turn: int = 0
    tool: str = ""
    argument: str = ""
    any_of: tuple[JsonValue, ...] = ()
    within: float | None = None
    is_ignored: bool = False
    answer: str | None = None
    call: int | None = None
    state: str | None = None
    at: str = ""
    type: str = ""
    pattern: str = ""
    is_later: bool = False
    answer_pattern: str = ""
    is_after_start: bool = False

    @property
    def is_of_answer(self) -> bool:
        """Whether it accepts another answer."""
        return self.answer is not None or bool(self.answer_pattern)

    @property
    def place(self) -> tuple[object, ...]:
        """The place of the entry; entries of one place are joined."""
        if self.is_of_answer:
            return self.turn, self.answer, self.answer_pattern
        return self.turn, self.tool, self.argument, self.call, self.state, self.at, self.type, self.pattern

    def accepts_answer(self, answer: str) -> bool:
        """Whether it is of an answer, and of this one. Raises MetricError."""
        if self.answer_pattern:
            # An agent that streams may end its answer with the blank after its last word.
            return any(has_match(self.answer_pattern, text, is_whole=True) for text in {answer, answer.strip()})
        return self.answer == answer

    def reason(self, expected: JsonValue, actual: JsonValue, start_time: float | None = None) -> str:
        """Why `actual` is accepted in the place of `expected`; empty when it is not. Raises MetricError.

        `start_time` of the trial is in seconds since 1970, None where it is not known.
        """
        if self.is_ignored:
            return "is ignored"
        if self.is_later and is_later(expected, actual):
            return "is a later time"
        if self.is_after_start and is_after_start(expected, actual, start_time):
            return "is a time after the start" if start_time is not None else "is a later time"
        if self.type and is_of_type(self.type, actual):
            return "may be anything" if self.type == "any" else f"is of type {self.type}"
        if self.pattern and isinstance(actual, str) and has_match(self.pattern, actual, is_whole=True):
            return "matches its pattern"
        return _tolerance([self]).reason(self.tool, self.argument, expected, actual)


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
        calls = () if each.state is not None else case.turns[each.turn - 1].expected.tool_calls or ()
        is_one = len(_places(calls, each.tool)) == 1
        allowances.append(replace(each, call=None) if is_one and each.call == 0 else each)
    return _with(case, _merge(allowances))


def allowances_after_edit(
    allowances: Iterable[Allowance], before: Case, after: Case, origins: Origins
) -> list[Allowance]:
    """The alternatives of `before` with the turn and call numbers of `after`; those of a removed call go."""
    new_allowances: list[Allowance] = []
    for each in allowances:
        if each.state is not None:
            new_allowances += [each] if each.state in (after.final_state or {}) else []
            continue
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
        if each.state is None:
            by_turn.setdefault(each.turn - 1, []).append(each)
    if transcript.turns:
        case = replace(case, final_state=compared_state(case, transcript.final_state, transcript.start_time))
    if not by_turn:
        return case, {}
    turns, accepted_calls = list(case.turns), dict[int, Sequence[AcceptedCall]]()
    for at, allowances in by_turn.items():
        if at < len(transcript.turns):
            record, start_time = transcript.turns[at], transcript.start_time
            expected, turn_calls = _apply_to_turn(turns[at].expected, record, allowances, start_time)
            turns[at] = replace(turns[at], expected=expected)
            if turn_calls:
                accepted_calls[at] = turn_calls
    return replace(case, turns=tuple(turns)), accepted_calls


def compared_state(case: Case, state: JsonObject, start_time: float | None = None) -> JsonObject | None:
    """The expected final state, with the values of `state` where the case accepts them. Raises UsageError.

    `start_time` of the trial is in seconds since 1970.
    """
    if case.final_state is None or ALSO_ACCEPTED not in case.extra:
        return case.final_state
    expected = dict(case.final_state)
    for each in _state_allowances(case):
        if each.state is not None and each.state in expected:
            value, _ = _accepted_part(each, expected[each.state], state.get(each.state, ABSENT), start_time)
            if value is ABSENT:
                del expected[each.state]
            else:
                expected[each.state] = value
    return expected


def _state_allowances(case: Case) -> list[Allowance]:
    """Those of the final state alone: a page may have the case without its turns."""
    entries = case.extra.get(ALSO_ACCEPTED)
    return [
        _allowance(f"{ALSO_ACCEPTED}[{at}]", each, 0)
        for at, each in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(each, Mapping) and "state" in each
    ]


def _accepted_part(allowance: Allowance, expected: object, actual: object, start_time: float | None) -> tuple[Any, str]:
    """The expected value with the part of the actual one that is accepted, and why; as it is where none is."""
    wish, value = part_at(expected, allowance.at), part_at(actual, allowance.at)
    if (wish is ABSENT or value is ABSENT) and not (allowance.is_ignored and wish is not value):
        return expected, ""
    if wish is not ABSENT and value is not ABSENT and json_equal(wish, value):
        return expected, ""
    reason = allowance.reason(wish, value, start_time)
    return (with_part(expected, allowance.at, value), reason) if reason else (expected, "")


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
    expected: Expected, record: TurnRecord, allowances: Sequence[Allowance], start_time: float | None
) -> tuple[Expected, tuple[AcceptedCall, ...]]:
    answers = [each.answer for each in allowances if each.answer is not None]
    has_pattern = any(each.answer_pattern and each.accepts_answer(record.answer) for each in allowances)
    if expected.reference is not None and has_pattern:
        expected = replace(expected, reference=record.answer)
    elif answers and expected.reference is not None:
        expected = replace(expected, reference=_nearest([expected.reference, *answers], record.answer or ""))
    if not expected.tool_calls:
        return expected, ()
    calls, actual_calls, accepted_calls = list(expected.tool_calls), record.judged_calls, []
    own = [_of_call(at, calls, allowances) for at in range(len(calls))]
    for op, i, j in align(
        calls, actual_calls, rule=[CallRule(tolerance=_tolerance(_whole_values(each))) for each in own]
    ):
        if op == "=" or i is None or j is None:
            continue
        args, reasons = _taken_args(calls[i], actual_calls[j], own[i], start_time)
        calls[i] = replace(calls[i], args=args)
        if reasons:
            accepted_calls.append(AcceptedCall(i, j, tuple(f"{name} {reason}" for name, reason in reasons.items())))
    return replace(expected, tool_calls=tuple(calls)), tuple(accepted_calls)


def _of_call(at: int, calls: Sequence[ToolCall], allowances: Sequence[Allowance]) -> list[Allowance]:
    """The alternatives of this expected call, one for each argument."""
    tool = calls[at].name
    number = _places(calls, tool).index(at)
    mine = [each for each in allowances if not each.is_of_answer and each.tool == tool and each.call in (None, number)]
    return _merge(replace(each, call=None) for each in mine)


def _taken_args(
    wish: ToolCall, call: ToolCall, allowances: Sequence[Allowance], start_time: float | None
) -> tuple[JsonObject, dict[str, str]]:
    """The expected arguments with those of the call that are accepted, and why each is."""
    args, reasons = dict(wish.args), dict[str, str]()
    for each in allowances:
        name = each.argument
        value, reason = _accepted_part(each, args.get(name, ABSENT), call.args.get(name, ABSENT), start_time)
        if not reason:
            continue
        reasons[name + each.at] = reason
        if value is ABSENT:
            del args[name]
        else:
            args[name] = value
    return args, reasons


def _tolerance(allowances: Sequence[Allowance]) -> Tolerance:
    return Tolerance(
        any_of={f"{each.tool}/{each.argument}": each.any_of for each in allowances if each.any_of},
        tolerances={f"{each.tool}/{each.argument}": each.within for each in allowances if each.within is not None},
    )


def _whole_values(allowances: Sequence[Allowance]) -> list[Allowance]:
    return [each for each in allowances if not each.at]


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
        is_later=one.is_later or other.is_later,
        is_after_start=one.is_after_start or other.is_after_start,
    )


def _write_allowance(each: Allowance) -> dict[str, JsonValue]:
    if each.answer is not None:
        return {"turn": each.turn, "answer": each.answer}
    if each.answer_pattern:
        return {"turn": each.turn, "answer_pattern": each.answer_pattern}
    value: dict[str, JsonValue] = {}
    if each.state is not None:
        value["state"] = each.state
    else:
        value |= {"turn": each.turn, "tool": each.tool}
        value |= {"call": each.call} if each.call is not None else {}
        value["argument"] = each.argument
    if each.at:
        value["at"] = each.at
    if each.any_of:
        value["any_of"] = [*each.any_of]
    if each.within is not None:
        value["within"] = each.within
    if each.type:
        value["type"] = each.type
    if each.pattern:
        value["pattern"] = each.pattern
    if each.is_later or each.is_after_start:
        value["later"] = True if each.is_later else AFTER_START
    if each.is_ignored:
        value["ignore"] = True
    return value


def _allowance(place: str, raw: JsonValue, n_turns: int) -> Allowance:
    if not isinstance(raw, Mapping):
        raise UsageError(f"{place} must be an object, got {type(raw).__name__}")
    known_keys = {"turn", "tool", "call", "argument", "answer", "answer_pattern", "state", "at", *_KINDS}
    if unknown := sorted(raw.keys() - known_keys):
        kinds = f"{', '.join(_KINDS)}, answer or answer_pattern"
        raise UsageError(f"{place} has the unknown key {unknown[0]!r:.80}; it may have {kinds}")
    if "state" in raw:
        if not isinstance(raw["state"], str) or raw.keys() & {"turn", "tool", "call", "argument"}:
            raise UsageError(f"{place}.state must be the name of a key of the final state, without a turn or a tool")
        return _accepted_values(place, raw, Allowance(state=raw["state"]))
    turn = raw.get("turn")
    if type(turn) is not int or not 1 <= turn <= n_turns:
        raise UsageError(f"{place}.turn must be the number of a turn, 1 to {n_turns}, got {turn!r:.80}")
    for name in ("answer", "answer_pattern"):
        if name in raw:
            text = raw[name]
            if len(raw) > 2 or not isinstance(text, str) or not (text or name == "answer"):
                raise UsageError(f"{place}.{name} must be a text, alone with its turn")
            if name == "answer":
                return Allowance(turn, answer=text)
            check_pattern(text, f"{place}.answer_pattern", field=ALSO_ACCEPTED)
            return Allowance(turn, answer_pattern=text)
    tool, argument = raw.get("tool"), raw.get("argument")
    if not isinstance(tool, str) or not isinstance(argument, str):
        raise UsageError(f"{place} must name a tool and an argument, an answer, or a key of the state")
    call = raw.get("call")
    if "call" in raw and (type(call) is not int or call < 0):
        raise UsageError(
            f"{place}.call must be the number of an expected call of {tool!r:.80}, from 0, got {call!r:.80}"
        )
    return _accepted_values(place, raw, Allowance(turn, tool, argument, call=call if type(call) is int else None))


def _accepted_values(place: str, raw: JsonObject, allowance: Allowance) -> Allowance:
    """The allowance of a place with the values that the entry accepts. Raises UsageError."""
    values, at, kind, pattern = (raw.get(key, default) for key, default in _VALUE_KEYS.items())
    if not isinstance(values, list):
        raise UsageError(f"{place}.any_of must be a list of values, got {type(values).__name__}")
    if not isinstance(at, str) or pointer_steps(at) is None:
        raise UsageError(f"{place}.at must be a JSON pointer such as /created, got {at!r:.80}")
    if "type" in raw and kind not in VALUE_TYPES:
        raise UsageError(f"{place}.type must be one of {', '.join(VALUE_TYPES)}, got {kind!r:.80}")
    if not isinstance(pattern, str):
        raise UsageError(f"{place}.pattern must be a regular expression, got {pattern!r:.80}")
    if pattern:
        check_pattern(pattern, f"{place}.pattern", field=ALSO_ACCEPTED)
    if not isinstance(raw.get("ignore", False), bool):
        raise UsageError(f"{place}.ignore must be true or false, got {raw['ignore']!r:.80}")
    later = raw.get("later", False)
    if not isinstance(later, bool) and later != AFTER_START:
        raise UsageError(f'{place}.later must be true, false or "{AFTER_START}", got {later!r:.80}')
    result = replace(
        allowance,
        any_of=tuple(values),
        within=_distance(f"{place}.within", raw.get("within")),
        is_ignored=raw.get("ignore") is True,
        is_later=later is True,
        is_after_start=later == AFTER_START,
        at=at,
        type=str(kind),
        pattern=pattern,
    )
    has_kind = kind or pattern or result.is_later or result.is_after_start or result.is_ignored
    if not (values or result.within is not None or has_kind):
        raise UsageError(f"{place} accepts nothing; it needs one of {', '.join(_KINDS)}")
    return result


_VALUE_KEYS: Mapping[str, JsonValue] = {"any_of": [], "at": "", "type": "", "pattern": ""}


def _distance(place: str, value: JsonValue) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise UsageError(f"{place} must be a number from 0 up, got {value!r:.80}")
    return value
