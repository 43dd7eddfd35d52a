"""Accept the behaviour of a trial as the expectation: a change for each difference, and the changed case."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from evaldesk.diff.repetition import LOOKS, OtherValue, matchers_of_values, sentence_pattern
from evaldesk.diff.turn_diff import CallRow, turn_diff
from evaldesk.errors import UsageError
from evaldesk.matching import (
    Allowance,
    allowances_after_edit,
    apply_allowances,
    differing_keys,
    distance,
    read_allowances,
    renumber_allowances,
    with_allowances,
)
from evaldesk.model import Case, Expected, JsonObject, JsonValue, Score, ToolCall, Transcript, TurnRecord
from evaldesk.model.json_text import json_line

ChangeTarget: TypeAlias = Literal["answer", "argument", "call", "calls", "state"]
"""The target of a change: an answer, an argument, an added or removed call, all calls of a turn, a state key."""
Way: TypeAlias = Literal["as_well", "within", "match", "replace", "ignore"]
"""The way to accept: as an alternative, within a tolerance, by a matcher, in its place, or by ignoring the value."""
Ways: TypeAlias = Mapping[str, Way]
"""The ways of the accepted changes by key."""
ValueScope: TypeAlias = Literal["only", "one", "all"]
"""The values that a change is of: the only one that trials gave there, one of several, or all of them together."""


@dataclass(frozen=True, slots=True)
class AcceptableChange:
    """One difference between a case and its trial, or a value that another trial has there.

    `key` is its name within the case, `trial_key` that of the difference of the trial. `expected` and `actual` are
    text: an answer verbatim, everything else as JSON on one line. None is an absent side. `others` are different values
    that other trials have there. `call` is the index of an argument's call among the expected calls of its tool in the
    turn, from 0. A change of all calls of a turn `lacks_calls` if an expected call is missing in it. `n_trials` have
    this value, of a change of all values one of them. `start_time` is that of the trial, and `other_starts` those of
    the trials of `others`, in seconds since 1970.
    """

    key: str
    part: ChangeTarget
    place: str
    expected: str | None
    actual: str | None
    turn: int = 0
    tool: str = ""
    argument: str = ""
    wish: JsonValue = None
    value: JsonValue = None
    call: int | None = None
    lacks_calls: bool = False
    others: tuple[JsonValue, ...] = ()
    scope: ValueScope = "only"
    trial_key: str = ""
    n_trials: int = 1
    start_time: float | None = None
    other_starts: tuple[float | None, ...] = ()

    # One click must not turn a regression into a passing test: decision 091.
    @property
    def is_less(self) -> bool:
        """Whether acceptance would weaken the case."""
        return self.lacks_calls or not self.actual

    @property
    def is_of_trial(self) -> bool:
        """Whether it is the difference of the staged trial, and not a value of other trials."""
        return not self.trial_key

    @property
    def ways(self) -> tuple[Way, ...]:
        """The possible ways to accept it, the least permissive first."""
        ways = self._ways()
        if self.scope == "only":
            return ways
        return tuple(way for way in ways if (way in ("within", "match", "ignore")) == (self.scope == "all"))

    def _ways(self) -> tuple[Way, ...]:
        match: tuple[Way, ...] = ("match",) if self.matchers() else ()
        if self.part == "answer":
            return ("as_well", *match, "replace")
        if self.part == "state":
            return (*match, "replace", "ignore")
        if self.part != "argument":
            return ("replace",)
        if self.expected is None or self.actual is None:
            return ("replace", "ignore")
        is_near = distance(self.wish, self.value) is not None
        return ("as_well", *(("within",) if is_near else ()), *match, "replace", "ignore")

    @property
    def place_key(self) -> tuple[object, ...]:
        """The place that changes of several trials share."""
        return self.part, self.turn, self.tool, self.argument, self.call

    def matchers(self) -> list[Allowance]:
        """What can stand in the place of a time or an id, and of a counter or a random number that trials show."""
        if self.expected is None or self.actual is None or self.part not in ("argument", "state", "answer"):
            return []
        if self.part == "answer":
            texts = [self.expected, self.actual, *(f"{each}" for each in self.others)]
            pattern = sentence_pattern(texts) if self.others else ""
            return [Allowance(self.turn, answer_pattern=pattern)] if pattern else []
        target = Allowance(self.turn, self.tool, self.argument, call=self.call)
        if self.part == "state":
            target = Allowance(state=self.argument)
        looks = LOOKS if self.others else ("time", "id")
        starts = (self.start_time, *(self.other_starts or (None,) * len(self.others)))
        values = [*map(OtherValue, (self.value, *self.others), starts)]
        return matchers_of_values(target, self.wish, values, looks)


def acceptable_changes(
    case: Case, transcript: Transcript, scores: Collection[Score] = ()
) -> tuple[AcceptableChange, ...]:
    """All differences that can be accepted, in the order of the turns, the final state last.

    Turns without assertions, unplayed turns, and calls accepted by their metric have none.
    """
    changes: list[AcceptableChange] = []
    allowances, (compared_case, _) = read_allowances(case), apply_allowances(case, transcript)
    for index, record in enumerate(transcript.turns[: len(case.turns)]):
        of_turn = [score for score in scores if score.turn == index]
        turn_allowances = [each for each in allowances if each.turn == index + 1]
        as_compared = compared_case.turns[index].expected.tool_calls or ()
        changes += _of_turn(index, case.turns[index].expected, record, of_turn, turn_allowances, as_compared)
    if case.final_state is not None and transcript.turns and transcript.visibility.state != "none":
        changes += [
            AcceptableChange(
                f"state.{key}",
                "state",
                f"Final state, {key}",
                json_line(case.final_state[key]),
                json_line(transcript.final_state[key]) if key in transcript.final_state else None,
                argument=key,
                wish=case.final_state[key],
                value=transcript.final_state.get(key),
            )
            for key in _differing_state(compared_case.final_state or {}, transcript.final_state)
        ]
    return tuple(replace(each, start_time=transcript.start_time) for each in changes)


def accept_changes(
    case: Case,
    transcript: Transcript,
    changes: Collection[str] | Ways,
    scores: Collection[Score] = (),
    others: Collection[tuple[Transcript, Collection[Score]]] = (),
) -> Case:
    """The case with the accepted changes in its expectations; everything else is unchanged.

    The keys are those of `offered_changes` with the same trials `others`; a collection of keys means `replace` for
    each. Raises UsageError where two values would replace the same one.
    """
    ways: Ways = changes if isinstance(changes, Mapping) else dict.fromkeys(changes, "replace")
    accepted_changes = (
        [each for each in offered_changes(case, transcript, scores, others) if each.key in ways] if ways else []
    )
    replacements = _replacements(accepted_changes, ways)
    ignored_keys = {each.argument for each in accepted_changes if each.part == "state" and ways[each.key] == "ignore"}
    turns, origins = (
        list(case.turns),
        [(at, [*range(len(turn.expected.tool_calls or ()))]) for at, turn in enumerate(case.turns)],
    )
    for index, record in enumerate(transcript.turns[: len(turns)]):
        expected = turns[index].expected
        of_turn = [score for score in scores if score.turn == index]
        if (answer := replacements.get(f"{index + 1}.answer")) and expected.reference is not None:
            expected = replace(expected, reference=answer.actual or "")
        if expected.tool_calls is not None:
            calls = _accepted_calls(index, expected, record, of_turn, replacements)
            expected = replace(expected, tool_calls=tuple(call for call, _ in calls))
            origins[index] = index, [place for _, place in calls]
        turns[index] = replace(turns[index], expected=expected)
    new_case = replace(
        case, turns=tuple(turns), final_state=_accepted_state(case.final_state, replacements, ignored_keys)
    )
    allowances = allowances_after_edit([*_allowances(accepted_changes, ways)], case, new_case, origins)
    new_case = renumber_allowances(case, new_case, origins)
    return with_allowances(new_case, allowances) if allowances else new_case


def _replacements(accepted_changes: Collection[AcceptableChange], ways: Ways) -> dict[str, AcceptableChange]:
    """The changes that replace an expectation, by the key of the difference of the trial. Raises UsageError."""
    replacements: dict[str, AcceptableChange] = {}
    for each in accepted_changes:
        key = each.trial_key or each.key
        if ways[each.key] != "replace":
            continue
        if key in replacements:
            raise UsageError(f"{each.place}: choose one value to replace the expected one, and accept others as well")
        replacements[key] = each
    return replacements


def offered_changes(
    case: Case,
    transcript: Transcript,
    scores: Collection[Score] = (),
    others: Collection[tuple[Transcript, Collection[Score]]] = (),
) -> tuple[AcceptableChange, ...]:
    """The differences of a trial, each value that other trials gave in its place as a change of its own.

    Where they gave several, what accepts all of them at once (a tolerance, a matcher, any value) is one change more.
    """
    changes = acceptable_changes(case, transcript, scores)
    if not changes or not others:
        return changes
    by_place: dict[tuple[object, ...], dict[str | None, list[AcceptableChange]]] = {}
    for trial, trial_scores in others:
        for each in acceptable_changes(case, trial, trial_scores):
            by_place.setdefault(each.place_key, {}).setdefault(each.actual, []).append(each)
    return tuple(row for change in changes for row in _with_other_values(change, by_place.get(change.place_key, {})))


def _with_other_values(
    change: AcceptableChange, changes_by_value: Mapping[str | None, Sequence[AcceptableChange]]
) -> Iterator[AcceptableChange]:
    if change.part in ("call", "calls"):
        yield change
        return
    if change.part == "state":  # a key has one expected value: the others only show what may stand in its place
        other_changes = [same[0] for text, same in changes_by_value.items() if text != change.actual]
        yield replace(
            change,
            others=tuple(each.value for each in other_changes),
            other_starts=tuple(each.start_time for each in other_changes),
            n_trials=1 + len(changes_by_value.get(change.actual, ())),
        )
        return
    others = {text: same for text, same in changes_by_value.items() if text != change.actual}
    own = replace(change, scope="one" if others else "only", n_trials=1 + len(changes_by_value.get(change.actual, ())))
    yield own
    for number, (text, same) in enumerate(others.items(), start=2):
        yield replace(
            own,
            key=f"other{number}.{change.key}",
            actual=text,
            value=same[0].value,
            trial_key=change.key,
            n_trials=len(same),
        )
    values = tuple(same[0].actual if change.part == "answer" else same[0].value for same in others.values())
    n_trials = own.n_trials + sum(map(len, others.values()))
    together = replace(
        own,
        key=f"all.{change.key}",
        others=values,
        other_starts=tuple(same[0].start_time for same in others.values()),
        scope="all",
        trial_key=change.key,
        n_trials=n_trials,
    )
    if others and together.ways:
        yield together


def _allowances(accepted_changes: Collection[AcceptableChange], ways: Ways) -> Iterator[Allowance]:
    """The allowances (alternatives, tolerances, ignored values) of all changes with another way than `replace`."""
    values: dict[tuple[object, ...], list[AcceptableChange]] = {}
    for each in accepted_changes:
        way = ways[each.key]
        if way == "replace" or way not in each.ways:
            continue
        if way == "match":
            yield from each.matchers()
        elif each.part == "answer" and way == "as_well":
            yield Allowance(each.turn, answer=each.actual)
        elif each.part == "argument" and way == "ignore":
            yield Allowance(each.turn, each.tool, each.argument, is_ignored=True, call=each.call)
        elif each.part == "argument" and way == "within":
            distances = (distance(each.wish, value) for value in (each.value, *each.others))
            within = max(far for far in distances if far is not None)
            yield Allowance(each.turn, each.tool, each.argument, within=within, call=each.call)
        elif each.part == "argument":
            values.setdefault(each.place_key, []).append(each)
    for first, *more in values.values():
        all_values = tuple(each.value for each in (first, *more))
        yield Allowance(first.turn, first.tool, first.argument, all_values, call=first.call)


def _of_turn(
    index: int,
    expected: Expected,
    record: TurnRecord,
    scores: list[Score],
    allowances: Collection[Allowance],
    as_compared: Sequence[ToolCall],
) -> Iterator[AcceptableChange]:
    turn, words = f"{index + 1}", f"Turn {index + 1}"
    rows = _rows(expected, record, scores)
    if any(row.op == "moved" for row in rows):
        actual = [row.actual for row in sorted(rows, key=lambda row: row.actual_place or 0) if row.actual]
        yield AcceptableChange(
            f"{turn}.calls",
            "calls",
            f"{words}, calls",
            _calls_line(expected.tool_calls or ()),
            _calls_line(actual),
            index + 1,
            lacks_calls=any(row.op == "-" for row in rows),
        )
    else:
        for number, row in enumerate(rows, start=1):
            yield from _of_call(f"{turn}.{number}", index, row, expected.tool_calls or (), as_compared)
    if expected.reference is not None and expected.reference != (record.answer or ""):
        answer = record.answer or ""
        if not any(answer == each.answer for each in allowances if each.answer is not None):
            yield AcceptableChange(
                f"{turn}.answer", "answer", f"{words}, answer", expected.reference, answer, index + 1
            )


def _rows(expected: Expected, record: TurnRecord, scores: list[Score]) -> tuple[CallRow, ...]:
    if expected.tool_calls is None:
        return ()
    return turn_diff(expected, record, scores).calls


def _of_call(
    key: str, index: int, row: CallRow, expected_calls: Sequence[ToolCall], as_compared: Sequence[ToolCall]
) -> Iterator[AcceptableChange]:
    words = f"Turn {index + 1}"
    if row.op == "+" and row.actual:
        yield AcceptableChange(key, "call", f"{words}, {row.actual.name}", None, _call_line(row.actual), index + 1)
    if row.op == "-" and row.expected:
        yield AcceptableChange(key, "call", f"{words}, {row.expected.name}", _call_line(row.expected), None, index + 1)
    if row.op == "~" and not row.because and row.expected and row.actual:
        at, names = (row.expected_place or 1) - 1, [call.name for call in expected_calls]
        call = names[:at].count(row.expected.name)
        which = f"call {call + 1} of {row.expected.name}" if names.count(row.expected.name) > 1 else row.expected.name
        for argument in differing_keys(as_compared[at].args, row.actual.args):
            yield AcceptableChange(
                f"{key}.{argument}",
                "argument",
                f"{words}, {which}, {argument}",
                json_line(row.expected.args[argument]) if argument in row.expected.args else None,
                json_line(row.actual.args[argument]) if argument in row.actual.args else None,
                index + 1,
                row.expected.name,
                argument,
                row.expected.args.get(argument),
                row.actual.args.get(argument),
                call,
            )


def _differing_state(expected: JsonObject, actual: JsonObject) -> list[str]:
    """The asserted keys with another value in the session; further keys of the session are not asserted."""
    return [key for key in differing_keys(expected, actual) if key in expected]


def _accepted_calls(
    index: int,
    expected: Expected,
    record: TurnRecord,
    scores: list[Score],
    replacements: Mapping[str, AcceptableChange],
) -> list[tuple[ToolCall, int | None]]:
    """The new expected calls, each with its place, from 0, among the former ones."""
    rows = _rows(expected, record, scores)
    if f"{index + 1}.calls" in replacements:
        rows_by_place = sorted(rows, key=lambda row: row.actual_place or 0)
        return [
            (_without_trial_facts(row.actual), _previous_place(row)) for row in rows_by_place if row.actual is not None
        ]
    if any(row.op == "moved" for row in rows):
        return [(call, at) for at, call in enumerate(expected.tool_calls or ())]
    calls: list[tuple[ToolCall, int | None]] = []
    for number, row in enumerate(rows, start=1):
        key = f"{index + 1}.{number}"
        if key in replacements:
            calls += [(_without_trial_facts(row.actual), None)] if row.actual else []
        elif row.expected and row.actual:
            args = _accepted_args(row.expected.args, key, replacements)
            calls.append((replace(row.expected, args=args), _previous_place(row)))
        elif row.expected:
            calls.append((row.expected, _previous_place(row)))
    return calls


def _previous_place(row: CallRow) -> int | None:
    return None if row.expected_place is None else row.expected_place - 1


def _accepted_args(expected: JsonObject, key: str, replacements: Mapping[str, AcceptableChange]) -> JsonObject:
    """The arguments with each replaced one: its new value, or none where the trial did not give it."""
    new_values = [each for name, each in replacements.items() if name == f"{key}.{each.argument}"]
    args = {name: value for name, value in expected.items() if name not in {each.argument for each in new_values}}
    new_args = {each.argument: each.value for each in new_values if each.actual is not None}
    return {name: {**args, **new_args}[name] for name in (*expected, *new_args) if name in args or name in new_args}


def _accepted_state(
    expected: JsonObject | None, replacements: Mapping[str, AcceptableChange], ignored_keys: Collection[str]
) -> JsonObject | None:
    if expected is None:
        return expected
    change_of = {key: replacements.get(f"state.{key}") for key in expected}
    return {
        key: change.value if change else value
        for key, value in expected.items()
        if key not in ignored_keys and not ((change := change_of[key]) and change.actual is None)
    }


def _without_trial_facts(call: ToolCall) -> ToolCall:
    """The call without the values of one trial only."""
    return ToolCall(call.name, call.args)


def _call_line(call: ToolCall) -> str:
    return json_line({"name": call.name, "args": call.args})


def _calls_line(calls: Collection[ToolCall]) -> str:
    return json_line([{"name": call.name, "args": call.args} for call in calls])
