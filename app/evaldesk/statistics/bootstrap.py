"""95 % intervals of pass@k and pass^k, means over cases, by drawing the cases again. (Efron 1979; Hesterberg 2015)

Not from scipy or numpy, which would be imported into the process that answers pages. Tests compare with scipy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, erfc, fsum, sqrt
from operator import mul
from random import Random

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import mean_interval, t_95
from evaldesk.statistics.pass_k import CaseCounts, CurvePoint, curve_ks, curve_point, curve_rows, pass_at_k, pass_hat_k

N_DRAWS = 1_000
SEED = 20_260_101
Series = tuple[float, ...]


def sure_curve(counts: Iterable[CaseCounts]) -> tuple[CurvePoint, ...]:
    """`pass_curve` with an interval at each point."""
    rows, last = curve_rows(counts)
    return _sure([curve_point(rows, k) for k in curve_ks(last)], rows)


def point_at(counts: Iterable[CaseCounts], k: int) -> CurvePoint:
    """The point of the curve at `k` with its intervals; undefined where the curve ends before `k`."""
    counts = list(counts)
    rows, last = curve_rows(counts)
    if not 1 <= k <= last:
        return CurvePoint(k, None, None, sum(times for n, _, times in counts if n >= k > 0))
    return _sure([curve_point(rows, k)], rows)[0]


@lru_cache(maxsize=256)
def case_intervals(times: tuple[int, ...], series: tuple[Series, ...]) -> tuple[Interval | None, ...]:
    """An interval, 0 to 1, of the mean of each series over cases; None below two cases.

    `times` is the number of equal cases, `series` the trials of each. The percentiles are those that make the interval
    of few cases as wide as Student's. Where Student's leaves the range, its ends take part: ten cases without a failure
    are not certainty.
    """
    n_cases = sum(times)
    if n_cases < 2:
        return tuple(None for _ in series)
    draws = _draws(times)
    return tuple(_interval(values, times, n_cases, draws) for values in series)


def expanded_level(n_cases: int) -> float:
    """The share of draws below the interval, at most 2.5 %, for at least two cases. (Hesterberg 2015, section 3.3)"""
    return erfc(t_95(n_cases - 1) * sqrt(n_cases / (n_cases - 1)) / sqrt(2)) / 2


def _sure(points: Sequence[CurvePoint], rows: Sequence[CaseCounts]) -> tuple[CurvePoint, ...]:
    series = [
        tuple(value(n, c, point.k) or 0.0 for n, c, _ in rows) for value in (pass_at_k, pass_hat_k) for point in points
    ]
    found = case_intervals(tuple(times for _, _, times in rows), tuple(series))
    return tuple(
        replace(point, at_interval=at, hat_interval=hat)
        for point, at, hat in zip(points, found[: len(points)], found[len(points) :], strict=True)
    )


def _interval(values: Series, times: tuple[int, ...], n_cases: int, draws: Sequence[Sequence[int]]) -> Interval:
    mean = fsum(map(mul, values, times)) / n_cases
    squares = fsum(n * (value - mean) ** 2 for value, n in zip(values, times, strict=True))
    means = sorted(sum(map(mul, values, draw)) for draw in draws)
    at = min(len(means) - 1, ceil(expanded_level(n_cases) * len(means)))
    low, high = means[at] / n_cases, means[-1 - at] / n_cases
    student = mean_interval(mean=mean, n=n_cases, n_cases=n_cases, squares=squares, cluster_squares=squares)
    if student is not None and (squares < 1e-12 or min(student.low, 1 - student.high) <= 0):
        low, high = min(low, student.low), max(high, student.high)
    return Interval(min(max(low, 0.0), mean), max(min(high, 1.0), mean))


def _draws(times: tuple[int, ...]) -> list[list[int]]:
    """How often each kind of case is drawn when as many cases as there are are drawn with replacement."""
    chance = Random(SEED)  # noqa: S311
    n_cases = sum(times)
    draws = []
    for _ in range(N_DRAWS):
        left, weight, draw = n_cases, n_cases, []
        for n in times[:-1]:
            drawn = _binomial(chance, left, n / weight)
            draw.append(drawn)
            left, weight = left - drawn, weight - n
        draws.append([*draw, left])
    return draws


def _binomial(chance: Random, n: int, p: float) -> int:
    """Successes of n draws with chance p, exactly: the bits of all n draws are compared with those of p at once."""
    found = 0
    while n and p > 0:
        p *= 2
        below = chance.getrandbits(n).bit_count()
        if p >= 1:
            found, n, p = found + below, n - below, p - 1
        else:
            n = below
    return found
