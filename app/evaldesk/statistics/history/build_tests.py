"""Whether an unchanged agent passes so few trials in one build: of the suite, and of each case.

The bar comes from the history of the cases: the passes of a build are sums of beta-binomials given mu and rho, then
averaged over these, since all cases share them. (reference/forecasts.md 4, 5)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.statistics.comparison import holm
from evaldesk.statistics.history.days import SAME_DAY, DayShifts, shift_rates
from evaldesk.statistics.history.posterior import Posterior, posterior_of, rate_grid
from evaldesk.statistics.history.sums import MOST_EXACT_TRIALS, Sums, pass_chances

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaldesk.statistics.history.posterior import Floats

    Complexes: TypeAlias = NDArray[np.complex128]

SUITE_LEVEL = 0.02
CASE_LEVEL = 0.01
"""Together 3 %: misfits of the model and single trials take up to 5 %."""
LOOK_LEVEL = 0.30
"""The suite looks low, and every case is played again, at this chance or less."""

Trials: TypeAlias = tuple[int, int]
"""Scored and passed trials of a case."""


@dataclass(frozen=True, slots=True)
class BuildVerdict:
    """One build against the history of its cases, in their order.

    `suite_chance` is the chance that an unchanged agent passes so few trials in all, `case_chances` that of each case;
    `worse_cases` are the places of cases that are worse by Holm over all of them.
    """

    suite_chance: float
    case_chances: tuple[float, ...]
    is_suite_worse: bool
    worse_cases: tuple[int, ...]


def likely_verdict(history: Sequence[Trials], now: Sequence[Trials], days: DayShifts = SAME_DAY) -> BuildVerdict:
    """The verdict over all trials of a build."""
    suite = suite_chance(history, now, days)
    cases = case_chances(history, now)
    return BuildVerdict(suite, cases, suite <= SUITE_LEVEL, worse_cases(cases))


def looks_low(history: Sequence[Trials], now: Sequence[Trials], days: DayShifts = SAME_DAY) -> bool:
    """Whether the suite passed so few trials that every case is played again."""
    return suite_chance(history, now, days) <= LOOK_LEVEL


def confirmed_verdict(
    history: Sequence[Trials],
    now: Sequence[Trials],
    suspects: Sequence[int],
    fresh: Sequence[Trials],
    days: DayShifts = SAME_DAY,
    *,
    counts_first: bool = True,
) -> BuildVerdict:
    """The verdict after fresh trials of the suspects, by place, and of every case where the suite looked low.

    The first trials count, too: had all cases been played again, both tests would keep their level, and multiplicity
    is over all cases, not over suspects. They do not count where they may be replayed: fresh ones alone keep the level
    as well, whatever was looked at before.
    """
    first = suite_chance(history, now, days)
    is_low = first <= LOOK_LEVEL
    both = list(fresh)
    if counts_first:
        both = [(n + n_fresh, passed + again) for (n, passed), (n_fresh, again) in zip(now, fresh, strict=True)]
    suite = suite_chance(history, both, days) if is_low else first
    of_suspects = case_chances(history, both)
    cases = tuple(chance if place in set(suspects) else 1.0 for place, chance in enumerate(of_suspects))
    return BuildVerdict(suite, cases, is_low and suite <= SUITE_LEVEL, worse_cases(cases))


def worse_cases(chances: Sequence[float]) -> tuple[int, ...]:
    """The places of the cases that are worse: Holm over all of them."""
    return tuple(place for place, chance in enumerate(holm(chances)) if chance <= CASE_LEVEL)


def suite_chance(history: Sequence[Trials], now: Sequence[Trials], days: DayShifts = SAME_DAY) -> float:
    """The chance that an unchanged agent passes so few of the scored trials, or fewer; 1 without any."""
    passes = _passes(history, now, days)
    return passes.at_most(sum(passed for _, passed in now)) if passes else 1.0


def usual_passes(history: Sequence[Trials], now: Sequence[Trials], days: DayShifts = SAME_DAY) -> tuple[int, int]:
    """The least number of passes that is not worse, and the greatest that is as likely at the other end."""
    passes = _passes(history, now, days)
    return (passes.bar(SUITE_LEVEL) + 1, min(passes.most, passes.bar(1 - SUITE_LEVEL) + 1)) if passes else (0, 0)


def _passes(history: Sequence[Trials], now: Sequence[Trials], days: DayShifts) -> Passes | None:
    kinds = Counter((*before, n_scored) for before, (n_scored, _) in zip(history, now, strict=True) if n_scored)
    return passes_of(posterior_of(history), kinds, days) if kinds else None


@dataclass(frozen=True, eq=False)
class Passes:
    """The passes of a build of an unchanged agent, 0 to `most`: exact chances, or sums by day and row with weights."""

    most: int
    exact: Floats | None
    sums: tuple[tuple[Sums, float], ...]
    weights: Floats

    def at_most(self, passes: int) -> float:
        """The chance of this number of passes or fewer."""
        if self.exact is None:
            return sum(weight * float(self.weights @ each.at_most(passes)) for each, weight in self.sums)
        return 0.0 if passes < 0 else float(self.exact[min(passes, self.most)])

    def bar(self, level: float) -> int:
        """The most passes whose chance, with fewer ones, is at most `level`; -1 where even none is likelier."""
        low, high = -1, self.most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at_most(middle) <= level else (low, middle - 1)
        return low


def passes_of(cases: Posterior, builds: Counter[tuple[int, int, int]], days: DayShifts = SAME_DAY) -> Passes:
    """The passes of a build, by (scored before, passed before, trials now) of its cases."""
    return _passes_of(cases, tuple(sorted(builds.items())), days)


@lru_cache(maxsize=16)
def _passes_of(cases: Posterior, builds: tuple[tuple[tuple[int, int, int], int], ...], days: DayShifts) -> Passes:
    """Kept, since one build is asked about many numbers of passes: at each look of a run that stops when decided."""
    import numpy as np

    rows, kinds = cases.main_rows, Counter(dict(builds))
    weights = cases.weights[rows] / cases.weights[rows].sum()
    sums = tuple((_sums(cases, kinds, shift), weight) for shift, weight in days.shifts)
    most = sums[0][0].most
    if sums[0][0].chances is None:
        return Passes(most, None, sums, weights)
    mixed = sum(weight * (weights @ each.chances) for each, weight in sums if each.chances is not None)
    exact = np.clip(np.cumsum(mixed), 0.0, 1.0)
    exact[-1] = 1.0
    return Passes(most, exact, (), weights)


def case_chances(history: Sequence[Trials], now: Sequence[Trials]) -> tuple[float, ...]:
    """The chance that an unchanged agent passes so few trials of each case, or fewer; 1 where none was scored."""
    cases = posterior_of(history)
    place_of = {kind[:2]: at for at, kind in enumerate(cases.kinds)}
    chances: dict[tuple[Trials, Trials], float] = {}
    for pair in zip(history, now, strict=True):
        before, (n_scored, n_passed) = pair
        if pair not in chances:
            tails = pass_chances(n_scored, rate_grid())[:, : n_passed + 1].sum(axis=1)
            chances[pair] = min(1.0, float(cases.of_kinds[place_of[before]] @ tails)) if n_passed < n_scored else 1.0
    return tuple(chances[pair] for pair in zip(history, now, strict=True))


def _sums(cases: Posterior, builds: Counter[tuple[int, int, int]], shift: int) -> Sums:
    """The passes of a build in each of the main rows, on a day with this shift."""
    import numpy as np

    rows = cases.main_rows
    place_of = {kind[:2]: at for at, kind in enumerate(cases.kinds)}
    groups = [(place_of[n_scored, n_passed], n, times) for (n_scored, n_passed, n), times in builds.items()]
    n_trials = sum(n * times for _, n, times in groups)
    rates = shift_rates(rate_grid(), shift)
    prior = cases.prior[rows]
    if n_trials <= MOST_EXACT_TRIALS:
        return _exact_sums(cases, groups, n_trials, rates)
    powers = np.array([rates, rates**2, rates**3])
    mean = variance = third = np.zeros(len(rows))
    for place, n, times in groups:
        first, second, cube = (powers * cases.likelihood[place]) @ prior.T / cases.evidence[place, rows]
        one, two, three = n * first, n * (n - 1) * second, n * (n - 1) * (n - 2) * cube
        square, cubed = two + one, three + 3 * two + one
        mean = mean + times * one
        variance = variance + times * (square - one**2)
        third = third + times * (cubed - 3 * one * square + 2 * one**3)
    return Sums(n_trials, mean, variance, third)


@lru_cache(maxsize=64)
def _waves(n: int, size: int) -> Complexes:
    """The terms of the Fourier transform of `size` values, of the first n + 1 of these."""
    import numpy as np

    waves: Complexes = np.exp(-2j * np.pi / size * np.outer(np.arange(n + 1), np.arange(size // 2 + 1)))
    return waves


def _exact_sums(cases: Posterior, groups: Sequence[tuple[int, int, int]], n_trials: int, rates: Floats) -> Sums:
    import numpy as np

    rows = cases.main_rows
    prior = cases.prior[rows]
    size = n_trials + 1
    product = np.ones((len(rows), size // 2 + 1), np.complex128)
    tables = {n: pass_chances(n, rates) for n in {n for _, n, _ in groups}}
    for place, n, times in groups:
        chances = prior @ (tables[n] * cases.likelihood[place][:, None]) / cases.evidence[place, rows][:, None]
        # A case has few values: their terms of the transform are fewer than its steps.
        product *= (chances @ _waves(n, size)) ** times
    nothing = np.zeros(len(rows))
    return Sums(n_trials, nothing, nothing, nothing, np.fft.irfft(product, size, axis=1))
