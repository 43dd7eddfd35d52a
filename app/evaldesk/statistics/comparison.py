"""Two runs, compared case by case. (reference/reliability_stats.md C1, compare two agents)"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from math import fsum, sqrt
from statistics import fmean
from typing import TypeVar

from evaldesk.model.comparison import ROUNDING, Comparison, Sample, Test
from evaldesk.model.conclusion import Interval
from evaldesk.statistics.exact_tests import mcnemar, sign_flips
from evaldesk.statistics.history import sizes
from evaldesk.statistics.intervals import chance_beyond, t_95

K = TypeVar("K", bound=Hashable)

_FEW_CASES = 30


def compare_scores(before: Mapping[K, float], after: Mapping[K, float]) -> Comparison | None:
    """Compare one score a case, by the key of the case: sign flips below 30 cases, Student's t from there on.

    None without a common case.
    """
    keys = [key for key in before if key in after]
    if not keys:
        return None
    differences = [after[key] - before[key] for key in keys]
    n = len(keys)
    difference = fmean(differences)
    error = sqrt(fsum((d - difference) ** 2 for d in differences) / (n - 1) / n) if n > 1 else 0.0
    is_even = error < ROUNDING
    half = 0.0 if is_even else t_95(n - 1) * error
    p, test = _p_of_even(difference, n) if is_even else _p(differences, difference, error)
    return Comparison(
        n_cases=n,
        n_only_before=len(before) - n,
        n_only_after=len(after) - n,
        n_better=sum(d > ROUNDING for d in differences),
        n_worse=sum(d < -ROUNDING for d in differences),
        before=fmean(before[key] for key in keys),
        after=fmean(after[key] for key in keys),
        difference=difference,
        error=error if n > 1 else None,
        interval=None if is_even else Interval(difference - half, difference + half),
        p=p,
        test=test,
    )


def compare_means(before: Mapping[K, Sample], after: Mapping[K, Sample]) -> Comparison | None:
    """Compare the mean of the trials of each case; see `compare_scores`.

    The mean of one trial lies anywhere among its values, that of many near their mean: where a case has not as many
    trials in both runs, an agent that did not change would look changed. The error is then at least that of trials
    drawn from one distribution for each case, whose variance is that of the trials of both runs.
    """
    comparison = compare_scores(*({key: sample.mean for key, sample in side.items()} for side in (before, after)))
    pairs = [(before[key], after[key]) for key in before if key in after]
    if comparison is None or all(earlier.n == later.n for earlier, later in pairs):
        return comparison
    sampling_error = sqrt(
        fsum(_variance(earlier, later) * (1 / earlier.n + 1 / later.n) for earlier, later in pairs)
    ) / len(pairs)
    error, df = max(comparison.error or 0.0, sampling_error), max(1, len(pairs) - 1)
    if error < ROUNDING:
        return comparison
    half, p = t_95(df) * error, chance_beyond(abs(comparison.difference / error), df)
    interval = Interval(comparison.difference - half, comparison.difference + half)
    return replace(
        comparison,
        error=error,
        interval=interval,
        p=max(p, comparison.p),
        test="t" if p > comparison.p else comparison.test,
    )


def _variance(before: Sample, after: Sample) -> float:
    """The variance of the trials of both together, at least two."""
    n = before.n + after.n
    apart = before.n * after.n / n * (before.mean - after.mean) ** 2
    return (before.squares + after.squares + apart) / (n - 1)


def cases_to_show(comparison: Comparison) -> int | None:
    """The number of further such cases, about, that would show this difference 4 times in 5, by the spread so far.

    None where it is shown already, or nothing differs. (reference/forecasts.md 8)
    """
    error, difference = comparison.error or 0.0, abs(comparison.difference)
    if comparison.is_distinguishable or error < ROUNDING or difference < ROUNDING:
        return None
    return sizes.cases_to_show(comparison.n_cases, difference, error)


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """p values of many tests, raised so that those below 5 % hold together: "is there any change". (Holm)"""
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[at]))
        adjusted[at] = highest
    return tuple(adjusted)


def benjamini_hochberg(ps: Sequence[float]) -> tuple[float, ...]:
    """p values of many tests, raised so that of those below 5 % one in 20 is false: "which ones changed"."""
    adjusted, lowest = [0.0] * len(ps), 1.0
    for rank, at in reversed(list(enumerate(sorted(range(len(ps)), key=ps.__getitem__), 1))):
        lowest = min(lowest, len(ps) / rank * ps[at])
        adjusted[at] = lowest
    return tuple(adjusted)


def _p_of_even(difference: float, n: int) -> tuple[float, Test]:
    """The p value where every case moved by the same: one pattern of signs each way is as far from 0."""
    return (mcnemar(n, 0) if abs(difference) > ROUNDING else 1.0), "sign flip"


def _p(differences: Sequence[float], difference: float, error: float) -> tuple[float, Test]:
    if len(differences) >= _FEW_CASES:
        return chance_beyond(abs(difference / error), len(differences) - 1), "t"
    # Whole numbers: sums that are equal must not differ by rounding.
    return sign_flips([round(d / ROUNDING) for d in differences]), "sign flip"
