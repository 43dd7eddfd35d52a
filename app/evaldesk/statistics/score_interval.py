"""95 % intervals of mean scores, by drawing the cases again. (Efron 1979; Hesterberg 2015)"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt
from operator import mul
from random import Random

from evaldesk.model.conclusion import Interval
from evaldesk.model.stored import CaseScores, MetricRow
from evaldesk.statistics.intervals import N_DRAWS, SEED, case_draws, expanded_level, mean_interval, t_95

MAX_KINDS = 50
"""The most kinds of cases that are drawn."""
FEW_CASES = 10
_LOPSIDED = 0.3


def speaks_by_sums(n_cases: int, squares: float, cubes: float) -> bool:
    """Whether sums over many cases give the quantiles of their draws: where single cases do not make the mean lopsided.

    `squares` and `cubes` are the sums of the powers of each case's deviation.
    """
    return n_cases > MAX_KINDS and abs(cubes) <= _LOPSIDED * squares * sqrt(squares)


def score_interval(row: MetricRow, low: float, high: float) -> Interval | None:
    """The interval of a mean score within its range, by drawing the cases again; None below two values.

    A single case is judged by its trials. Where Student's interval leaves the range, its ends take part, as for pass@k,
    and where the draws do not reach far enough: of few cases, and of many with a few that outweigh them.
    """
    student = mean_interval(
        mean=row.mean,
        n=row.n,
        n_cases=row.n_cases,
        squares=row.squares,
        cluster_squares=row.cluster_squares,
        low=low,
        high=high,
    )
    if student is None or row.n_cases < 2 or row.cluster_squares <= 1e-24 * row.n**2:
        return student
    is_known = speaks_by_sums(row.n_cases, row.cluster_squares, row.cluster_cubes)
    drawn = _drawn_mean(row.kinds) if row.kinds else _mean_by_sums(row) if row.n_cases > MAX_KINDS else student
    ends = [max(drawn.low, low), min(drawn.high, high)]
    is_short = row.n_cases < FEW_CASES or not (row.kinds or is_known)
    if is_short or student.low <= low or student.high >= high:
        ends = [min(ends[0], student.low), max(ends[1], student.high)]
    return Interval(min(ends[0], row.mean), max(ends[1], row.mean))


@lru_cache(maxsize=1024)
def _drawn_mean(kinds: tuple[CaseScores, ...]) -> Interval:
    """The quantiles of the mean over the draws: a ratio, where cases have different numbers of values."""
    ns, totals, times = zip(*kinds, strict=True)
    n_cases = sum(times)
    drawn = _few_draws(times) if n_cases <= MAX_KINDS else case_draws(times)
    means = sorted(sum(map(mul, totals, draw)) / sum(map(mul, ns, draw)) for draw in drawn)
    at = min(len(means) - 1, ceil(expanded_level(n_cases) * len(means)))
    return Interval(means[at], means[-1 - at])


def _mean_by_sums(row: MetricRow) -> Interval:
    """The same quantiles from the first four moments of the cases, exact to the order of 1 / their number.

    (Cornish and Fisher 1938; Hall 1992, section 2.5)
    """
    n = row.n_cases
    error = sqrt(row.cluster_squares) / row.n
    skew = max(-_LOPSIDED, min(_LOPSIDED, row.cluster_cubes / row.cluster_squares / sqrt(row.cluster_squares)))
    peak = max(-1.0, min(1.0, row.cluster_fourths / row.cluster_squares / row.cluster_squares - 3 / n))
    z = t_95(n - 1) * sqrt(n / (n - 1))
    low, high = (
        at + skew * (at**2 - 1) / 6 + peak * (at**3 - 3 * at) / 24 - skew**2 * (2 * at**3 - 5 * at) / 36
        for at in (-z, z)
    )
    return Interval(row.mean + error * low, row.mean + error * high)


@lru_cache(maxsize=64)
def _few_draws(times: tuple[int, ...]) -> list[list[int]]:
    """`case_draws` of few cases, each drawn by itself, which is faster for many kinds."""
    chance = Random(SEED)  # noqa: S311
    kinds = [kind for kind, n in enumerate(times) for _ in range(n)]
    drawn = []
    for _ in range(N_DRAWS):
        draw = [0] * len(times)
        for kind in chance.choices(kinds, k=len(kinds)):
            draw[kind] += 1
        drawn.append(draw)
    return drawn
