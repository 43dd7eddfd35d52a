"""A run judged by the history of its compared cases, by the rules `likely` and `confirm`. (reference/forecasts.md 4, 5)

Every case and the suite are judged twice where fresh trials have no verdict yet: as if these passed, and as if they
failed. More passes never make either worse, so what both say is decided. (docs/decisions/057)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor

from evaldesk.model.comparison import CaseChange, MissingTrials, PlayedCase, RunChange, SuiteChange
from evaldesk.model.evalset import CasePosition
from evaldesk.model.forecast import SOUGHT
from evaldesk.statistics.history.build_tests import (
    SUITE_LEVEL,
    BuildVerdict,
    Trials,
    case_chances,
    confirmed_verdict,
    likely_verdict,
    looks_low,
    suite_chance,
    usual_passes,
    worse_cases,
)
from evaldesk.statistics.history.days import SAME_DAY, DayShifts
from evaldesk.statistics.history.draws import missing_history
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.proposals import MOST_N, confirm_trials, fewest_history_trials, trials_without_history


def judged_by_history(change: RunChange) -> RunChange:
    """The change with the verdict on each compared case, and on the cases of each eval set together.

    The level of the suite is shared among eval sets, that of the cases by Holm among all of them. Where the histories
    of `others` say that more cases are played elsewhere, or with `max_regressions` above 0, the suite is not judged.
    """
    suites = _suites(change)
    if not suites:
        return change
    best, worst = (
        [chance for suite in suites for chance in suite.verdict(passes=passes).case_chances] for passes in (True, False)
    )
    is_worse, may_be_worse = set(worse_cases(best)), set(worse_cases(worst))
    by_place: dict[CasePosition, CaseChange] = {}
    first = 0
    for suite in suites:
        for at, case in enumerate(suite.cases):
            place = first + at
            by_place[case.key.place] = replace(
                case,
                chance=best[place],
                is_worse=place in is_worse,
                may_be_worse=place in may_be_worse,
                is_again=at in suite.replayed_places,
            )
        first += len(suite.history)
    level = SUITE_LEVEL / len(suites)
    return replace(
        change,
        cases=tuple(by_place.get(case.key.place, case) if case.after else case for case in change.cases),
        suites=() if change.others or change.max_regressions else tuple(suite.judge(level) for suite in suites),
        n_worst=len(worse_cases([chance for suite in suites for chance in suite.chances_of_failures])),
        missing_trials=None if change.others else next(filter(None, (suite.trials_to_add for suite in suites)), None),
    )


def can_fail(suites: Sequence[tuple[Sequence[Trials], Sequence[int]]], most: int) -> bool:
    """Whether a run fails in which every trial does, more than `most` cases or the suite where none may be worse.

    `suites` are the histories of the cases of each eval set, and the trials that each case is to have.
    """
    failed = [(history, [(n, 0) for n in n_each]) for history, n_each in suites]
    n_worse = len(worse_cases([chance for each in failed for chance in case_chances(*each)]))
    level = SUITE_LEVEL / max(1, len(failed))
    return n_worse > most or (not most and any(suite_chance(*each) <= level for each in failed))


def _suites(change: RunChange) -> list[_Suite]:
    """The compared cases of each eval set."""
    by_set: dict[str, list[CaseChange]] = {}
    for case in change.cases:
        if case.is_compared:
            by_set.setdefault(case.key.evalset, []).append(case)
    return [_Suite(change, tuple(cases)) for cases in by_set.values()]


@dataclass(frozen=True)
class _Suite:
    """The compared cases of one eval set, in their order, and after them the others that are played elsewhere."""

    change: RunChange
    cases: tuple[CaseChange, ...]

    @cached_property
    def days(self) -> DayShifts:
        return DayShifts(self.change.days.weights) if self.change.days.weights else SAME_DAY

    @cached_property
    def sides(self) -> list[tuple[PlayedCase, PlayedCase]]:
        return [(case.before, case.after) for case in self.cases if case.before and case.after]

    @cached_property
    def history(self) -> list[Trials]:
        return [*(before.past for before, _ in self.sides), *self.change.others]

    @property
    def is_confirm(self) -> bool:
        return self.change.rule == "confirm"

    @property
    def n_fresh(self) -> int:
        return self.change.confirm[1] if self.is_confirm else 0

    @cached_property
    def planned_trials(self) -> list[Trials]:
        """The planned trials."""
        return [
            *(_count_letters(after.scored_letters) for _, after in self.sides),
            *((0, 0) for _ in self.change.others),
        ]

    @cached_property
    def is_low(self) -> bool:
        is_judged = not (self.change.others or self.change.max_regressions)
        return self.is_confirm and is_judged and looks_low(self.history, self.planned_trials, self.days)

    @cached_property
    def replayed_places(self) -> frozenset[int]:
        """The places of the cases that are played again."""
        if not self.is_confirm:
            return frozenset()
        return frozenset(at for at, case in enumerate(self.cases) if self.is_low or case.kind == "broken")

    @cached_property
    def n_missing(self) -> list[int]:
        """The fresh trials of each case that have no verdict."""
        again = [max(0, self.n_fresh - len(after.scored_again)) for _, after in self.sides]
        return [n if at in self.replayed_places else 0 for at, n in enumerate(again)]

    def fresh(self, *, passes: bool) -> list[Trials]:
        """The fresh trials that count, as if those without a verdict ended so."""
        trials = [(0, 0)] * len(self.history)
        for at in self.replayed_places:
            n, passed = _count_letters(self.sides[at][1].scored_again)
            trials[at] = (n + self.n_missing[at], passed + self.n_missing[at] * passes)
        return trials

    def verdict(self, *, passes: bool) -> BuildVerdict:
        """The verdict if the fresh trials without a verdict ended so."""
        if not self.is_confirm:
            return self._best
        return self._best if passes or not any(self.n_missing) else self._confirm_verdict(passes=False)

    @cached_property
    def _best(self) -> BuildVerdict:
        if self.is_confirm:
            return self._confirm_verdict(passes=True)
        return likely_verdict(self.history, self.planned_trials, self.days)

    def _confirm_verdict(self, *, passes: bool) -> BuildVerdict:
        suspects = [at for at, case in enumerate(self.cases) if case.kind == "broken"]
        fresh = self.fresh(passes=passes)
        counts_first = not self.change.is_replayed
        return confirmed_verdict(
            self.history, self.planned_trials, suspects, fresh, self.days, counts_first=counts_first
        )

    @cached_property
    def _failures(self) -> list[Trials]:
        """As many trials as could count, each failed."""
        now = [(0, 0)] * len(self.planned_trials) if self.change.is_replayed else self.planned_trials
        return [(n + self.n_fresh * (at < len(self.cases)), 0) for at, (n, _) in enumerate(now)]

    @property
    def chances_of_failures(self) -> tuple[float, ...]:
        """The chance of each case to fail every trial."""
        return case_chances(self.history, self._failures)

    def judge(self, level: float) -> SuiteChange:
        """The verdict on the cases together, at this level."""
        best, worst = (self.verdict(passes=passes) for passes in (True, False))
        may_be = self.is_low or not self.is_confirm
        fresh = self.fresh(passes=True) if self.is_low else [(0, 0)] * len(self.planned_trials)
        first_trials = (
            [(0, 0)] * len(self.planned_trials) if self.change.is_replayed and self.is_low else self.planned_trials
        )
        both = [(n + n_fresh, 0) for (n, _), (n_fresh, _) in zip(first_trials, fresh, strict=True)]
        scored_again = [_count_letters(after.scored_again) for _, after in self.sides] if self.is_low else []
        return SuiteChange(
            evalset=self.cases[0].key.evalset,
            scored=sum(n for n, _ in self.planned_trials),
            passed=sum(passed for _, passed in self.planned_trials),
            usual=usual_passes(self.history, both, self.days),
            chance=best.suite_chance,
            scored_again=sum(n for n, _ in scored_again),
            passed_again=sum(passed for _, passed in scored_again),
            looks_low=self.is_low,
            is_worse=may_be and best.suite_chance <= level,
            may_be_worse=may_be and worst.suite_chance <= level,
            can_be_worse=suite_chance(self.history, self._failures, self.days) <= level,
            is_replayed=self.change.is_replayed,
        )

    @property
    def trials_to_add(self) -> MissingTrials | None:
        """The trials that are missing to find an agent that is worse by SOUGHT; None where there are enough."""
        return missing_trials(self.history, [n for n, _ in self.planned_trials], self.n_fresh)


def missing_trials(history: Sequence[Trials], n_each: Sequence[int], n_fresh: int = 0) -> MissingTrials | None:
    """The trials of each case that a build of so many lacks to find an agent that is worse by SOUGHT in 4 of 5 builds.

    By the formulas of proposals, which are near from a history of some length on, and one more, since they promise up
    to 5 % too much. Where more than MOST_N trials would be needed, more history, or more cases.
    """
    cases, n_cases = posterior_of(history), len(history)
    if n_short := missing_history(cases):
        return MissingTrials(before=n_short)
    before, now = cases.n_trials / n_cases, sum(n_each) / n_cases
    of_trial, of_worse = cases.trial_variance(), cases.trial_variance(SOUGHT)
    if n_fresh:
        n_needed = confirm_trials(n_cases, before, of_trial, of_worse, fresh=n_fresh)
    else:
        n_needed = trials_without_history(n_cases, before, of_trial, of_worse)
    if n_needed is not None and n_needed <= max(now, MOST_N):
        return MissingTrials(now=ceil(n_needed + 1 - now)) if n_needed > now else None
    return MissingTrials(before=max(0, fewest_history_trials(n_cases, of_trial, of_worse / MOST_N) - floor(before)))


def _count_letters(letters: str) -> Trials:
    return len(letters), letters.count("p")
