"""The answers of one gate for cases whose chances to pass are known: it holds, it fails, or it is too close to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from evaldesk.desk.runs.deciding import looks_of
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import StopRule, Undecided, scored_and_passed
from evaldesk.model.stored import RunSummary
from evaldesk.statistics.chances.gates import (
    ROUNDING,
    Answers,
    Kinds,
    chance_of_at_least,
    curve_holds,
    likely_drops,
    more_than,
    needed_passes,
    regressed_by_chance,
    regressed_in_draws,
    still_regressed,
    trials_to_tell,
)
from evaldesk.statistics.chances.means import MeanChances, mean_curve, mean_difference, mean_rate, rate_holds
from evaldesk.statistics.chances.stops import Stopped, stopped_rate


@dataclass(frozen=True, slots=True)
class Subject:
    """The cases that a gate judges: by the chance of a trial to pass and the trials of each, and the share of them that
    a case must pass.

    `drawn` are the scored and passed trials of each kind of case in a stored run, from which two runs of an unchanged
    agent are drawn.
    """

    kinds: Kinds
    pass_threshold: float = 1.0
    drawn: tuple[tuple[int, int], ...] = ()

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return sum(n_cases for *_, n_cases in self.kinds)

    @property
    def n(self) -> int:
        """The trials that each case has."""
        return min(n for _, n, _ in self.kinds)

    @property
    def n_most(self) -> int:
        """The most trials of a case."""
        return max(n for _, n, _ in self.kinds)

    @property
    def is_even(self) -> bool:
        """Whether all cases have as many trials."""
        return self.n == self.n_most

    @property
    def n_trials(self) -> int:
        """The trials of all cases."""
        return sum(n * n_cases for _, n, n_cases in self.kinds)

    @property
    def trials_to_tell(self) -> int:
        """The fewest trials of each case with which one case can show a likely drop."""
        return trials_to_tell(self.n_cases)

    def dropped(self, drop: float) -> Subject:
        """The same cases played by an agent whose pass rate is lower by `drop` in each of them."""
        return replace(self, kinds=[(max(0.0, p - drop), n, n_cases) for p, n, n_cases in self.kinds], drawn=())

    def played(self, n: int) -> Subject:
        """The same cases with `n` trials each."""
        n_of = Counter[float]()
        for p, _, n_cases in self.kinds:
            n_of[p] += n_cases
        return replace(self, kinds=[(p, n, n_cases) for p, n_cases in n_of.items()], drawn=())


def assumed_subject(rate: float, n_each: Iterable[int], pass_threshold: float) -> Subject:
    """Cases with so many trials that all pass with the same chance."""
    return Subject([(rate, n, n_cases) for n, n_cases in sorted(Counter(n_each).items())], pass_threshold)


def played_subject(
    runs: StoredRuns, run: RunSummary, n_each: Sequence[int] | None, pass_threshold: float | None
) -> Subject:
    """The cases of a stored run with the pass rates that they had, and with its trials, or those of `n_each`.

    Raises UsageError when none was scored.
    """
    are_failures = run.config.errors_are_failures
    strips = runs.store.strips(run.id)
    found = Counter(
        (*scored_and_passed(strip, errors_are_failures=are_failures), n)
        for strip, n in zip(strips, n_each or map(len, strips), strict=True)
    )
    threshold = run.config.pass_threshold if pass_threshold is None else pass_threshold
    subject = drawn_subject([(*case, times) for case, times in sorted(found.items())], threshold)
    if not subject.kinds:
        raise UsageError(f"run {run.id} has no scored trials to estimate pass rates from; name another run")
    return subject


def drawn_subject(cases: Iterable[tuple[int, int, int, int]], pass_threshold: float) -> Subject:
    """Cases by their scored and passed trials, those to play, and how many such cases; unscored ones are left out."""
    rows = Counter[tuple[int, int, int]]()
    for scored, passed, n, times in cases:
        if scored:
            rows[scored, passed, n] += times
    kinds = [(passed / scored, n, times) for (scored, passed, n), times in rows.items()]
    return Subject(kinds, pass_threshold, tuple((scored, passed) for scored, passed, _ in rows))


def rate_answers(subject: Subject, least: float, undecided: Undecided | None) -> Answers:
    """The answers of a threshold on the pass rate."""
    if undecided and 0 < least < 1:
        return _counted(mean_rate(tuple(subject.kinds)), least, undecided)
    low, high = rate_holds(subject.kinds, least)
    return Answers.that_hold((low + high) / 2, (high - low) / 2)


def margin_answers(before: Subject, now: Subject, margin: float, undecided: Undecided | None) -> Answers:
    """The answers of a limit for the drop of the pass rate."""
    pairs = zip(before.kinds, now.kinds, strict=True)
    found = mean_difference(tuple((p, worse, n, n_cases) for (p, n, n_cases), (worse, *_) in pairs))
    least = -margin - ROUNDING
    if undecided is None:
        fails = found.below(least)
        return Answers(1 - fails - found.open_below(least), fails, found.error)
    return _counted(found, least, undecided, none_beside=0.0)


def curve_answers(
    subject: Subject, k: int, least: float, undecided: Undecided | None, *, is_hat: bool
) -> Answers | None:
    """The answers of a threshold on pass^k where `is_hat`, else on pass@k; None where it is not defined."""
    if undecided and 0 < least < 1:
        none_beside = prod((1 - p) ** ((n - subject.n) * n_cases) for p, n, n_cases in subject.kinds)
        return _counted(mean_curve(tuple(subject.kinds), k, is_hat=is_hat), least, undecided, none_beside)
    holds = curve_holds(subject.kinds, k, least, is_hat=is_hat)
    return None if holds is None else Answers.that_hold(holds)


def _counted(found: MeanChances, threshold: float, undecided: Undecided, none_beside: float = 1.0) -> Answers:
    """The answers of a number, where one too close to its threshold counts as this.

    Where nothing passed it never counts as passed; `none_beside` is the chance that nothing passed beside the number.
    """
    holds, fails = found.above(threshold), found.below(threshold)
    if undecided == "neutral":
        return Answers(holds, fails, found.error)
    if undecided == "fail":
        return Answers.that_hold(holds, found.error)
    return Answers.that_hold(max(0.0, 1 - fails - found.none_around(threshold) * none_beside), found.error)


def stopped_run(now: Subject, least: float, rule: StopRule | None) -> Stopped | None:
    """The run that stops when this one gate is decided; None for different numbers of trials."""
    if rule is None or not now.is_even:
        return None
    looks = tuple(looks_of(now.n, now.n_cases))
    return stopped_rate(tuple(now.kinds), least, looks, is_likely=rule == "likely")


def likely_answers(before: Subject, now: Subject, allowed: int) -> Answers | None:
    """The answers of the gate on regressions where a case regressed by more than chance; None without known chances."""
    pairs = zip(before.kinds, now.kinds, strict=True)
    drops = likely_drops([(p, worse, n, n_cases) for (p, n, n_cases), (worse, *_) in pairs], allowed)
    return None if drops is None else Answers.that_hold(1 - drops)


def fails_confirmed(before: Subject, now: Subject, allowed: int, needed: int, n: int) -> float:
    """The chance that more cases than are allowed seem to have regressed, and still do so after fresh trials."""
    seeming = zip(regressions_of(before, now), now.kinds, strict=True)
    return more_than(
        allowed, [(still_regressed(chance, p, needed, n), n_cases) for (chance, n_cases), (p, *_) in seeming]
    )


def regressions_of(before: Subject, now: Subject) -> list[tuple[float, int]]:
    """The chance of each case to pass in the baseline and not to pass now: (chance, how many such cases)."""
    if now is before and before.drawn:
        drawn = [
            (regressed_in_draws(*counts, n, before.pass_threshold), p, n, n_cases)
            for counts, (p, n, n_cases) in zip(before.drawn, before.kinds, strict=True)
        ]
        return [
            (regressed_by_chance(p, n, before.pass_threshold) if chance is None else chance, n_cases)
            for chance, p, n, n_cases in drawn
        ]
    return [
        (chance_of_at_least(needed, n, p) * (1 - chance_of_at_least(needed, n, worse)), n_cases)
        for (p, n, n_cases), (worse, *_) in zip(before.kinds, now.kinds, strict=True)
        for needed in [needed_passes(n, now.pass_threshold)]
    ]
