"""95 % intervals: Wilson for one rate, clustered by case for repeated trials. (reference/reliability_stats.md C1)"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import atan, cos, expm1, fsum, isfinite, lgamma, log, log1p, pi, sin, sqrt

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.pass_k import CaseCounts

Z_95 = 1.959963984540054


def wilson(c: float, n: int) -> Interval:
    """Wilson's interval for c of n independent trials; 0 to 1 when n is 0."""
    return _wilson(c / n, n, Z_95) if n > 0 else Interval(0.0, 1.0)


def _wilson(rate: float, n: float, z: float) -> Interval:
    """Wilson's interval for a rate seen in n independent trials, `z` deviations wide."""
    z2 = z * z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = z * sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if rate <= 0 else max(0.0, middle - half)
    return Interval(low, 1.0 if rate >= 1 else min(1.0, middle + half))


def rate_interval(counts: Iterable[CaseCounts]) -> Interval | None:
    """Interval of the share of passed trials, clustered by case; None when no trial was scored.

    Wilson where clusters say nothing: one trial a case, a single case (then over its trials), or cases that all
    have the same rate (then over cases), so that ten cases without a failure are not certainty.
    """
    rows = [row for row in counts if row[0] > 0 and row[2] > 0]
    n_cases = sum(times for _, _, times in rows)
    n = sum(scored * times for scored, _, times in rows)
    c = sum(passed * times for _, passed, times in rows)
    if not n:
        return None
    if n_cases in (1, n):
        return wilson(c, n)
    squares = fsum(times * (passed - scored * c / n) ** 2 for scored, passed, times in rows)
    return _clustered(c / n, n, n_cases, squares, 0.0, 1.0)


def mean_interval(
    *,
    mean: float,
    n: int,
    n_cases: int,
    squares: float,
    cluster_squares: float,
    low: float = 0.0,
    high: float = 1.0,
) -> Interval | None:
    """Interval of a mean score over n trials of `n_cases` cases, within the metric's range; None when n is below 2.

    `squares` is the sum of squared deviations from the mean; `cluster_squares` the sum over cases of (sum of the
    case's values - their number x mean) squared. A single case is judged by its trials. None, too, where all values
    are the same and the range is endless: then nothing says how far the next one may lie.
    """
    if n < 2 or n_cases < 1:
        return None
    if n_cases == 1:
        return _clustered(mean, n, n, squares, low, high)
    return _clustered(mean, n, n_cases, cluster_squares, low, high)


def clustered_error(n: int, n_clusters: int, cluster_squares: float) -> float:
    """Standard error of a mean of n values in at least two clusters, with the small-sample correction CR1."""
    return sqrt(n_clusters / (n_clusters - 1) * cluster_squares) / n


def _clustered(mean: float, n: int, n_clusters: int, squares: float, low: float, high: float) -> Interval | None:
    """Student's interval around the mean; where it leaves the range also the interval of a rate in that place.

    Near an end of the range errors are lopsided, and Student's alone covers 82 % where it promises 95 %. Wilson's is
    then taken over as many unrelated trials as these are worth. (Korn and Graubard 1998; Dean and Pagano 2015)
    """
    error = clustered_error(n, n_clusters, squares)
    place = min(1.0, max(0.0, (mean - low) / (high - low))) if isfinite(high - low) else None
    if error < 1e-12:
        return None if place is None else _within(low, high, _wilson(place, n_clusters, Z_95))
    t = t_95(n_clusters - 1)
    left, right = mean - t * error, mean + t * error
    if place is None or (low <= left and right <= high):
        return Interval(max(low, left), min(high, right))
    worth = max(1.0, place * (1 - place) * ((high - low) / error) ** 2)
    lopsided = _within(low, high, _wilson(place, worth, t))
    return Interval(max(low, min(left, lopsided.low)), min(high, max(right, lopsided.high)))


def _within(low: float, high: float, share: Interval) -> Interval:
    return Interval(low + share.low * (high - low), low + share.high * (high - low))


@lru_cache(maxsize=1024)
def t_95(df: int) -> float:
    """The 97.5 % quantile of Student's t with `df` degrees of freedom, at least 1.

    Not from scipy: importing that took 0.6 s and 43 MB in the process that answers pages. A test compares the two.
    """
    if df > 200:
        return _t_by_expansion(df)
    low, high = Z_95, 13.0
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _t_between(middle, df) < 0.95 else (low, middle)
    return high


def chance_beyond(t: float, df: int) -> float:
    """Chance that |T| of Student's t with `df` degrees of freedom, at least 1, is `t` or more; to 14 places."""
    return max(0.0, 1.0 - _t_between(t, df))


def _t_between(t: float, df: int) -> float:
    """Chance that |T| stays below t. (Abramowitz and Stegun 26.7.3 and 26.7.4)"""
    angle = atan(t / sqrt(df))
    term = cos(angle) if df % 2 else 1.0
    total = term if df > 1 else 0.0
    for step in range(3 if df % 2 else 2, df - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    return 2 / pi * (angle + sin(angle) * total) if df % 2 else sin(angle) * total


def _t_by_expansion(df: int) -> float:
    """The quantile for many degrees of freedom, to ten digits from 200 on. (Abramowitz and Stegun 26.7.5)"""
    z = Z_95
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * df**4)
    )


_ODDS = 20.0  # 1 / (1 - 95 %)
_LEAST_RATE = 1e-300


def clopper_pearson(c: int, n: int) -> Interval:
    """The interval for c of n independent trials that covers the rate in at least 95 % of cases; 0 to 1 when n is 0.

    Wider than Wilson's; its ends are quantiles of the beta distribution.
    """
    if n <= 0:
        return Interval(0.0, 1.0)
    from scipy.special import betaincinv

    low = float(betaincinv(c, n - c + 1, 0.025)) if c > 0 else 0.0
    return Interval(low, float(betaincinv(c + 1, n - c, 0.975)) if c < n else 1.0)


def failure_bound(n: int) -> float:
    """The highest failure rate (one-sided, 95 %) that n trials without a failure allow; 1 when n is 0.

    1 - 0.05^(1/n), which the "rule of three" approximates as 3 / n.
    """
    return -expm1(log(0.05) / n) if n > 0 else 1.0


def anytime_interval(c: int, n: int) -> Interval:
    """The interval for c of n trials that stays valid however often one looks and whenever one stops.

    The rates p with B(1+c, 1+n-c) / (p^c (1-p)^(n-c)) below 20; 0 to 1 when n is 0. Wider than Wilson's.
    """
    if n <= 0:
        return Interval(0.0, 1.0)
    return Interval(_anytime_low(c, n), 1.0 - _anytime_low(n - c, n))


def _anytime_low(c: int, n: int) -> float:
    """The lowest rate that is not ruled out, by bisection: the evidence falls all the way up to c / n."""
    if c <= 0:
        return 0.0
    bound = lgamma(1 + c) + lgamma(1 + n - c) - lgamma(2 + n) - log(_ODDS)
    low, high = _LEAST_RATE, c / n
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        failures = (n - c) * log1p(-middle) if n > c else 0.0
        low, high = (middle, high) if bound - c * log(middle) - failures > 0 else (low, middle)
    return high
