"""The value that a proposed change is about, and the trials with each value, now and as proposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.desk.client_proposals import ProposalEffect
from evaldesk.errors import UsageError
from evaldesk.matching.allowed import Allowance, read_allowances
from evaldesk.model import Case, TrialResult
from evaldesk.model.json_text import short_json

MAX_VALUES = 12
LONGEST_VALUE = 120
NO_VALUE = "none"


@dataclass(frozen=True, slots=True)
class ChangedPlace:
    """The only place that a change is about: an argument of a tool, the answer of a turn, or a key of the state.

    `turn` counts from 1, and is 0 for the state. An empty `tool` is the answer.
    """

    turn: int
    tool: str = ""
    name: str = "answer"

    def value(self, trial: TrialResult) -> str:
        """The value of a trial there, in one line."""
        turns = trial.transcript.turns
        if not self.turn:
            state = trial.transcript.final_state
            return short_json(state[self.name], LONGEST_VALUE) if self.name in state else NO_VALUE
        if self.turn > len(turns):
            return NO_VALUE
        record = turns[self.turn - 1]
        if not self.tool:
            return short_json(record.answer or "", LONGEST_VALUE)
        calls = (call for call in record.tool_calls if call.name == self.tool and self.name in call.args)
        call = next(calls, None)
        return NO_VALUE if call is None else short_json(call.args[self.name], LONGEST_VALUE)


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A value, the number of trials with it, and how many of them pass and are scored now and as proposed."""

    value: str
    n: int
    n_before: int
    n_after: int
    n_scored_before: int
    n_scored_after: int
    share: float
    """Of all trials, from 0 to 100."""


def changed_place(before: Case, after: Case) -> ChangedPlace | None:
    """The one place that differs; None where there are several, or something else differs."""
    places = set(_places(before, after))
    return places.pop() if len(places) == 1 else None


def _places(before: Case, after: Case) -> Iterator[ChangedPlace]:
    for turn, (old, new) in enumerate(zip(before.turns, after.turns, strict=False), 1):
        if old.expected.reference != new.expected.reference:
            yield ChangedPlace(turn)
        old_calls, new_calls = old.expected.tool_calls or (), new.expected.tool_calls or ()
        if [call.name for call in old_calls] != [call.name for call in new_calls]:
            yield from (ChangedPlace(turn, call.name, "") for call in (*old_calls, *new_calls))
            continue
        for old_call, new_call in zip(old_calls, new_calls, strict=True):
            for name in {**old_call.args, **new_call.args}:
                if old_call.args.get(name) != new_call.args.get(name):
                    yield ChangedPlace(turn, old_call.name, name)
    old_state, new_state = before.final_state or {}, after.final_state or {}
    for name in {**old_state, **new_state}:
        if old_state.get(name) != new_state.get(name):
            yield ChangedPlace(0, name=name)
    yield from (_place_of(each) for each in set(_allowances(before)) ^ set(_allowances(after)))


def _allowances(case: Case) -> Sequence[Allowance]:
    try:
        return [each for each in read_allowances(case) if _is_hashable(each)]
    except UsageError:
        return ()


def _is_hashable(allowance: Allowance) -> bool:
    try:
        hash(allowance)
    except TypeError:  # a value of it is a list or an object
        return False
    return True


def _place_of(allowance: Allowance) -> ChangedPlace:
    if allowance.state is not None:
        return ChangedPlace(0, name=allowance.state)
    return ChangedPlace(allowance.turn, allowance.tool, allowance.argument or "answer")


def value_rows(place: ChangedPlace, effect: ProposalEffect) -> tuple[ValueRow, ...]:
    """The values of the trials, the most frequent first; none where a call itself is added or removed."""
    if not place.name:
        return ()
    trials = list(zip(effect.trials, effect.effect.verdicts_before, effect.effect.verdicts_after, strict=True))
    verdicts_by_value: dict[str, list[tuple[str, str]]] = {}
    for trial, before, after in trials:
        verdicts_by_value.setdefault(place.value(trial), []).append((before, after))
    rows = [
        ValueRow(
            value,
            len(pairs),
            sum(before == "passed" for before, _ in pairs),
            sum(after == "passed" for _, after in pairs),
            sum(effect.effect.is_scored(before) for before, _ in pairs),
            sum(effect.effect.is_scored(after) for _, after in pairs),
            100 * len(pairs) / len(trials),
        )
        for value, pairs in verdicts_by_value.items()
    ]
    return tuple(sorted(rows, key=_by_number)[:MAX_VALUES])


def _by_number(row: ValueRow) -> tuple[int, str]:
    return -row.n, row.value
