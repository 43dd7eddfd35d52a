"""The cases of two runs, paired by key: the state of each, the verdicts that flipped, and the one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from evaldesk.model.case_key import CaseKey, case_names
from evaldesk.statistics.comparison import Comparison, benjamini_hochberg, compare_scores
from evaldesk.statistics.exact_tests import fisher

CaseState: TypeAlias = Literal["same", "edited since", "lost its reference", "lost its verdict", "gone", "new"]
Kind: TypeAlias = Literal[
    "broken",
    "lost its verdict",
    "shakier",
    "fixed",
    "steadier",
    "lost its reference",
    "edited",
    "same",
    "not scored",
    "only in A",
    "only in B",
]
Way: TypeAlias = Literal["better", "worse", "mixed", ""]
KINDS: tuple[Kind, ...] = get_args(Kind)
REGRESSED: frozenset[Kind] = frozenset({"broken", "lost its verdict"})
ALPHA = 0.05
TO_PLAY = "."
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PlayedCase:
    """A case of a run and its trials.

    `strip` has one letter a trial, by trial index: `p`, `f`, `e`, `u` for the verdicts, `.` for a trial to play. A file
    may tell only how many trials ended how: then the strip `is_ordered` no longer. `asserted` is what `assertions`
    gives, None where it is not known.
    """

    key: CaseKey
    strip: str
    pass_threshold: float = 1.0
    errors_are_failures: bool = False
    asserted: Mapping[str, int] | None = None
    is_ordered: bool = True

    @property
    def scored(self) -> str:
        """The letters of the scored trials, by trial index."""
        if self.errors_are_failures:
            return self.strip.replace("e", "f").replace("u", "").replace(".", "")
        return self.strip.replace("e", "").replace("u", "").replace(".", "")

    @property
    def is_without_verdict(self) -> bool:
        """Whether every trial was played and none was scored."""
        return not self.scored and TO_PLAY not in self.strip

    def is_passed(self, scored: str) -> bool:
        """Whether enough of these scored trials passed; there is at least one."""
        return scored.count("p") >= (self.pass_threshold - _ROUNDING) * len(scored)

    def first(self, m: int) -> str | None:
        """The first `m` scored trials; None where it is not known how they ended."""
        scored = self.scored
        is_known = self.is_ordered or m >= len(scored) or len(set(scored)) == 1
        return scored[:m] if is_known else None


@dataclass(frozen=True, slots=True)
class CaseChange:
    """A case in both runs, or in one of them.

    `points` is how much more often it passes now, in points of 100; `p` Fisher's of its two rates, None with one trial
    on a side. `stands_out` says whether that is more than chance among so many cases.
    """

    key: CaseKey
    name: str
    state: CaseState
    kind: Kind
    before: PlayedCase | None
    after: PlayedCase | None
    points: float | None = None
    p: float | None = None
    stands_out: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether it passed before, and now fails or has no verdict."""
        return self.kind in REGRESSED

    @property
    def is_same_case(self) -> bool:
        """Whether it is in both runs with the same content."""
        return self.before is not None and self.after is not None and not self.before.key.is_edited(self.after.key)

    @property
    def is_compared(self) -> bool:
        """Whether it is the same case with scored trials in both runs."""
        return self.points is not None


@dataclass(frozen=True)
class RunChange:
    """What a run changed against the earlier run `name`. `rates` compares the pass rates of the compared cases."""

    name: str
    cases: tuple[CaseChange, ...]
    rates: Comparison | None

    def named(self, *kinds: Kind) -> tuple[str, ...]:
        """The names of the cases of these kinds."""
        return tuple(case.name for case in self.cases if case.kind in kinds)

    def in_state(self, state: CaseState) -> tuple[str, ...]:
        """The names of the cases in this state."""
        return tuple(case.name for case in self.cases if case.state == state)

    @property
    def regressed(self) -> tuple[CaseChange, ...]:
        """The cases that passed before, and now fail or have no verdict."""
        return tuple(case for case in self.cases if case.is_regression)

    @property
    def n_judged(self) -> int:
        """Cases that could have regressed or been fixed: the compared ones, and those that lost their verdict."""
        return sum(case.is_compared or case.is_regression for case in self.cases)

    @cached_property
    def n_up(self) -> int:
        """Cases that pass more often by more than chance."""
        return sum(case.stands_out and (case.points or 0.0) > 0 for case in self.cases)

    @cached_property
    def n_down(self) -> int:
        """Cases that pass less often by more than chance."""
        return sum(case.stands_out and (case.points or 0.0) < 0 for case in self.cases)

    @property
    def way(self) -> Way:
        """The one answer: from the mean over cases and from single cases, empty where both could be chance."""
        is_moved = self.rates is not None and self.rates.is_distinguishable
        is_up = bool(self.n_up) or (is_moved and self.rates is not None and self.rates.difference > 0)
        is_down = bool(self.n_down) or (is_moved and self.rates is not None and self.rates.difference < 0)
        if is_up and is_down:
            return "mixed"
        return "better" if is_up else "worse" if is_down else ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run, by number or by file: its cases as they were. `name` says which run it is."""

    name: str
    cases: tuple[PlayedCase, ...]


def compare_cases(name: str, before: Sequence[PlayedCase], after: Sequence[PlayedCase]) -> RunChange:
    """Compare two runs case by case: those that regressed come first, by how much they lost.

    A case is compared where its content is the same. A flip is counted between equally many trials of both, the
    first scored ones by trial index, and not where the rates over all trials say the opposite.
    """
    old = {case.key.place: case for case in before}
    new = {case.key.place: case for case in after}
    names = case_names([case.key for case in (*before, *after)])
    changes = [_change(names[place], old[place], new[place]) for place in old if place in new]
    gone = [(place, case) for place, case in old.items() if place not in new]
    added = [(place, case) for place, case in new.items() if place not in old]
    changes += [CaseChange(case.key, names[place], "gone", "only in A", case, None) for place, case in gone]
    changes += [CaseChange(case.key, names[place], "new", "only in B", None, case) for place, case in added]
    tested = [change for change in changes if change.p is not None]
    adjusted = benjamini_hochberg([change.p or 0.0 for change in tested])
    outstanding = {change.key.place for change, p in zip(tested, adjusted, strict=True) if p < ALPHA}
    changes = [replace(each, stands_out=True) if each.key.place in outstanding else each for each in changes]
    changes.sort(key=lambda change: (KINDS.index(change.kind), -abs(change.points or 0.0)))
    compared = [change.key.place for change in changes if change.is_compared]
    rates = compare_scores(*({place: _rate(side[place]) for place in compared} for side in (old, new)))
    return RunChange(name, tuple(changes), rates)


def _change(name: str, before: PlayedCase, after: PlayedCase) -> CaseChange:
    state = _state(before, after)
    old, new = before.scored, after.scored
    if old and after.is_without_verdict and before.is_passed(old):
        return CaseChange(after.key, name, state, "lost its verdict", before, after)
    if state == "lost its reference":
        return CaseChange(after.key, name, state, "lost its reference", before, after)
    if before.key.is_edited(after.key):
        return CaseChange(after.key, name, state, "edited", before, after)
    if not old or not new:
        return CaseChange(after.key, name, state, "not scored", before, after)
    points = 100 * (_rate(after) - _rate(before))
    # One trial on either side can never tell.
    p = fisher(old.count("p"), len(old), new.count("p"), len(new)) if min(len(old), len(new)) > 1 else None
    return CaseChange(after.key, name, state, _kind(before, after, points, p), before, after, points, p)


def _state(before: PlayedCase, after: PlayedCase) -> CaseState:
    is_edited = before.key.is_edited(after.key)
    if is_edited and before.asserted is not None and after.asserted is not None:
        is_lost = any(after.asserted.get(kind, 0) < n for kind, n in before.asserted.items())
        if is_lost:
            return "lost its reference"
    if before.scored and after.is_without_verdict:
        return "lost its verdict"
    return "edited since" if is_edited else "same"


def _kind(before: PlayedCase, after: PlayedCase, points: float, p: float | None) -> Kind:
    m = min(len(before.scored), len(after.scored))
    old, new = before.first(m), after.first(m)
    if old is None or new is None:
        # Which trials came first is not known: the rates decide, and only beyond chance.
        is_moved = p is not None and p < ALPHA
        old, new = (before.scored, after.scored) if is_moved else ("", "")
    was, now = before.is_passed(old), after.is_passed(new)
    if was and not now and points <= 0:
        return "broken"
    if now and not was and points >= 0:
        return "fixed"
    if abs(points) < _ROUNDING:
        return "same"
    return "steadier" if points > 0 else "shakier"


def _rate(case: PlayedCase) -> float:
    scored = case.scored
    return scored.count("p") / len(scored)
