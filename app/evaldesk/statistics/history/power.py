"""The differences that an experiment finds 4 times in 5, by the pass rates of its cases, and the cases for one.

As `statistics/experiment.py` compares: paired by case, exact sign flips below 30 cases and Student's t from there on,
each p value adjusted for all comparisons of its family. Checked by simulation: 70 to 95 % of experiments with 7 cases
and more find the difference, 75 to 85 % with 30 and more. (reference/experiments.md 6, decision 505)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, floor, pi, sqrt
from statistics import NormalDist
from typing import TypeAlias

from evaldesk.statistics.history.posterior import Posterior, rate_grid
from evaldesk.statistics.intervals import t_quantile

Rates: TypeAlias = tuple[tuple[float, float], ...]
"""Pass rates with the share of the cases that have each."""

POWER, ALPHA = 0.8, 0.05
GAIN_SPREAD = 0.05
"""The standard deviation over cases of their gain from one variant to another."""
UNKNOWN_RATES: Rates = ((0.7887, 1.0),)
"""Rates of cases that were never played: the variance of a trial is 1/6, as in `statistics/noise.py`."""
MOST_CASES, MOST_TRIALS = 1_000_000, 1_000
_FEW_CASES = 30
_N_BINS = 20
_N_STEPS = 14
_MOST_EXACT = 12
"""Trials of a case up to which equal counts of passes are summed exactly."""
_Z = NormalDist()


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest loss and gain of pass rate that are found 4 times in 5; None where no such change is possible."""

    loss: float | None
    gain: float | None

    @property
    def either(self) -> float | None:
        """The difference that is found whichever way it goes, or the only way it can go."""
        changes = [each for each in (self.loss, self.gain) if each is not None]
        return max(changes, default=None)


def rates_of(posterior: Posterior) -> Rates:
    """The rates of cases with this posterior, in bins."""
    import numpy as np

    rates = rate_grid()
    weights = np.average(posterior.of_kinds, axis=0, weights=posterior.n_each)
    bins = np.minimum((rates * _N_BINS).astype(int), _N_BINS - 1)
    shares = np.bincount(bins, weights, _N_BINS)
    sums = np.bincount(bins, weights * rates, _N_BINS)
    return tuple((float(total / share), float(share)) for total, share in zip(sums, shares, strict=True) if share)


@lru_cache(maxsize=512)
def detectable(n_cases: int, n: int, rates: Rates, n_comparisons: int) -> Detectable:
    """The smallest changes of one variant of an experiment, whose family has so many comparisons.

    `n` are the trials of a case that each side has, over all levels of other factors.
    """
    if n_cases < 1 or n < 1:
        return Detectable(None, None)
    loss, gain = (_smallest_change(n_cases, n, rates, n_comparisons, sign) for sign in (-1, 1))
    return Detectable(loss, gain)


def smallest_difference(n_cases: int, n: int, rates: Rates, n_comparisons: int) -> float | None:
    """The smallest difference between two variants that is found 4 times in 5; None where none is."""
    return detectable(n_cases, n, rates, n_comparisons).either


def cases_for_difference(difference: float, n: int, rates: Rates, n_comparisons: int) -> int | None:
    """The fewest cases with which a difference is found 4 times in 5; None above `MOST_CASES`."""
    return fewest(MOST_CASES, lambda n_cases: _finds(difference, n_cases, n, rates, n_comparisons))


def trials_for_difference(difference: float, n_cases: int, rates: Rates, n_comparisons: int) -> int | None:
    """The fewest trials of each case with which a difference is found 4 times in 5; None above `MOST_TRIALS`."""
    return fewest(MOST_TRIALS, lambda n: _finds(difference, n_cases, n, rates, n_comparisons))


def _finds(difference: float, n_cases: int, n: int, rates: Rates, n_comparisons: int) -> bool:
    smallest = smallest_difference(n_cases, n, rates, n_comparisons)
    return smallest is not None and smallest <= difference


def fewest(most: int, is_enough: Callable[[int], bool]) -> int | None:
    """The fewest from 1 to `most` that is enough, where more is enough as well; None where not even `most` is."""
    low, high = 1, most
    if not is_enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def _smallest_change(n_cases: int, n: int, rates: Rates, n_comparisons: int, sign: int) -> float | None:
    """The mean change of all cases by the smallest step that is enough; no case leaves 0 to 1."""
    low, high = 0.0, 1.0
    changes = _Changes.of(rates, sign * high, n)
    if not _is_enough(changes, n_cases, n, n_comparisons):
        return None
    for _ in range(_N_STEPS):
        middle = (low + high) / 2
        middle_changes = _Changes.of(rates, sign * middle, n)
        if _is_enough(middle_changes, n_cases, n, n_comparisons):
            high, changes = middle, middle_changes
        else:
            low = middle
    return abs(changes.mean)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of all cases by one step: their mean and variance, the variance of a trial of both sides together.

    `tied_share` are the cases with as many passes on both sides.
    """

    mean: float
    variance: float
    trial_variance: float
    tied_share: float

    @staticmethod
    def of(rates: Rates, step: float, n: int) -> _Changes:
        """The changes of cases with these rates, `n` trials on each side."""
        pairs = [(rate, min(1.0, max(0.0, rate + step)), share) for rate, share in rates]
        mean = sum(share * (after - before) for before, after, share in pairs)
        return _Changes(
            mean,
            sum(share * (after - before - mean) ** 2 for before, after, share in pairs) + GAIN_SPREAD**2,
            sum(share * (before * (1 - before) + after * (1 - after)) for before, after, share in pairs),
            sum(share * _tied(n, before, after) for before, after, share in pairs),
        )


def _is_enough(changes: _Changes, n_cases: int, n: int, n_comparisons: int) -> bool:
    error = sqrt((changes.variance + changes.trial_variance / n) / n_cases)
    alpha = ALPHA / n_comparisons
    if n_cases >= _FEW_CASES:
        return abs(changes.mean) >= _distance(n_cases - 1, alpha) * error
    distance = _distance_of_signs(n_cases, changes.tied_share, alpha)
    return distance is not None and abs(changes.mean) >= distance * error


def _distance(df: float, alpha: float) -> float:
    """Standard errors from 0 at which Student's t is below `alpha` 4 times in 5: noncentral t, approximately."""
    whole_df = max(1, int(df))
    bound = t_quantile(whole_df, 1 - alpha)
    return bound * (1 - 1 / (4 * whole_df)) + _Z.inv_cdf(POWER) * sqrt(1 + bound * bound / (2 * whole_df))


def _distance_of_signs(n_cases: int, tied_share: float, alpha: float) -> float | None:
    """The same for sign flips, whose p value is a multiple of 2 in 2^cases; None where not even the least is enough.

    A tied case has no sign, and their number varies by half its standard deviation on the safe side. The factors 1.3
    and 0.3 make up for the steps of p values and counts; they are fitted by simulation.
    """
    n_signs = n_cases * (1 - tied_share) - sqrt(n_cases * tied_share * (1 - tied_share)) / 2
    n_patterns = floor(alpha * 2 ** (n_signs - 1) + 1e-9)
    if n_patterns < 1:
        return None
    if n_patterns == 1:  # every case has to change the same way
        return 1.3 * _Z.inv_cdf(POWER ** (1 / n_signs)) * sqrt(n_signs)
    return _distance(n_signs - 1, n_patterns / 2 ** (n_signs - 1)) * (1 + 0.3 / n_patterns)


def _tied(n: int, before: float, after: float) -> float:
    """The chance that both sides pass equally often in `n` trials; above `_MOST_EXACT` by the normal distribution."""
    if n <= _MOST_EXACT:
        return sum(a * b for a, b in zip(_binomial(n, before), _binomial(n, after), strict=True))
    variance = n * (before * (1 - before) + after * (1 - after))
    distance = n * abs(after - before)
    if variance < 0.25:
        return 1.0 if distance < 0.5 else 0.0
    return min(1.0, exp(-distance * distance / (2 * variance)) / sqrt(2 * pi * variance))


def _binomial(n: int, rate: float) -> Sequence[float]:
    return [comb(n, passes) * rate**passes * (1 - rate) ** (n - passes) for passes in range(n + 1)]
