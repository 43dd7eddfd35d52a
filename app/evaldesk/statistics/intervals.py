"""95 % intervals of the rates and means of repeated trials, and pass@k and pass^k with theirs.

Wilson for one rate, clustered by case for repeated trials (reference/reliability_stats.md C1). Those of pass@k and
pass^k, means over cases, by drawing the cases again (Efron 1979; Hesterberg 2015): not from scipy or numpy, which would
be imported into the process that answers pages. Tests compare with scipy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import atan, ceil, comb, cos, erfc, expm1, fsum, hypot, isfinite, log, pi, sin, sqrt
from operator import mul
from random import Random
from statistics import NormalDist
from typing import TypeAlias

from evaldesk.model.conclusion import Interval
from evaldesk.model.stored import CaseScores, MetricRow

CaseCounts: TypeAlias = tuple[int, int, int]
"""Cases with the same outcome: scored trials of each, passed trials of each, how many such cases."""
Series = tuple[float, ...]

Z_95 = 1.959963984540054
N_DRAWS = 1_000
SEED = 20_260_101
MAX_KINDS = 50
"""The most kinds of cases that are drawn."""
FEW_CASES = 10
_LOPSIDED = 0.3
_DENSE_UP_TO = 20


# Wilson and Student share the ends of a rate near 0 and 1: decision 077.
def wilson(c: float, n: float) -> Interval:
    """Wilson's interval for c of n independent trials; 0 to 1 when n is 0."""
    return _wilson(c / n, n, Z_95) if n > 0 else Interval(0.0, 1.0)


def _wilson(rate: float, n: float, z: float) -> Interval:
    """Wilson's interval for a rate seen in n independent trials, `z` deviations wide."""
    z2 = z * z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = z * sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low = 0.0 if rate <= 0 else max(0.0, middle - half)
    return Interval(low, 1.0 if rate >= 1 else min(1.0, middle + half))


def newcombe(c: int, n: int, c_other: int, n_other: int) -> Interval:
    """95 % interval of the first rate less the other, from their Wilson intervals. (Newcombe 1998, method 10)

    -1 to 1; both rates need a trial.
    """
    rate, other_rate = c / n, c_other / n_other
    own, other = wilson(c, n), wilson(c_other, n_other)
    difference = rate - other_rate
    return Interval(
        max(-1.0, difference - hypot(rate - own.low, other.high - other_rate)),
        min(1.0, difference + hypot(own.high - rate, other_rate - other.low)),
    )


def rate_interval(counts: Iterable[CaseCounts]) -> Interval | None:
    """Interval of the share of passed trials, clustered by case; None when no trial was scored.

    Wilson where clusters say nothing: one trial a case, a single case (then over its trials), or cases that all
    have the same rate (then over cases), so that ten cases without a failure are not certainty.
    """
    rows = [row for row in counts if row[0] > 0]
    n_cases = sum(times for _, _, times in rows)
    n = sum(n_scored * times for n_scored, _, times in rows)
    c = sum(n_passed * times for _, n_passed, times in rows)
    if not n:
        return None
    if n_cases in (1, n):
        return wilson(c, n)
    squares = fsum(times * (n_passed - n_scored * c / n) ** 2 for n_scored, n_passed, times in rows)
    return _clustered_interval(c / n, n, n_cases, squares, 0.0, 1.0)


def case_rate_interval(counts: Iterable[CaseCounts]) -> Interval | None:
    """Interval of the mean of the pass rates of cases with different numbers of trials; None when none was scored.

    The mean is sum(c_i / n_i) / M over M scored cases, and its variance sum((c_i / n_i - mean)^2) / (M (M - 1)): a case
    is one value, whose own doubt is part of the spread over cases. A single case is judged by its trials.
    """
    rows = [
        (n_passed / n_trials, n_trials, times) for n_trials, n_passed, times in counts if n_trials > 0 and times > 0
    ]
    n_cases = sum(times for _, _, times in rows)
    if not n_cases:
        return None
    if n_cases == 1:
        rate, n_scored, _ = rows[0]
        return wilson(rate * n_scored, n_scored)
    mean = fsum(rate * times for rate, _, times in rows) / n_cases
    squares = fsum(times * (rate - mean) ** 2 for rate, _, times in rows)
    return _clustered_interval(mean, n_cases, n_cases, squares, 0.0, 1.0)


def like_these(rate: float, these: Interval, clustered: Interval) -> Interval:
    """The interval for cases like these at any stop, from that of exactly these cases and the clustered one now.

    The doubt about the trials and the doubt about the cases, each as far from `rate`, add up as squares.
    (reference/forecasts.md 7)
    """
    low = rate - sqrt((rate - these.low) ** 2 + (rate - clustered.low) ** 2)
    high = rate + sqrt((these.high - rate) ** 2 + (clustered.high - rate) ** 2)
    return Interval(max(0.0, low), min(1.0, high))


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
        return _clustered_interval(mean, n, n, squares, low, high)
    return _clustered_interval(mean, n, n_cases, cluster_squares, low, high)


def clustered_error(n: int, n_clusters: int, cluster_squares: float) -> float:
    """Standard error of a mean of n values in at least two clusters, with the small-sample correction CR1."""
    return sqrt(n_clusters / (n_clusters - 1) * cluster_squares) / n


def _clustered_interval(
    mean: float, n: int, n_clusters: int, squares: float, low: float, high: float
) -> Interval | None:
    """Student's interval around the mean; where it leaves the range also the interval of a rate in that place.

    Near an end of the range errors are lopsided, and Student's alone covers 82 % where it promises 95 %. Wilson's is
    then taken over as many unrelated trials as these are worth. (Korn and Graubard 1998; Dean and Pagano 2015)
    """
    error = clustered_error(n, n_clusters, squares)
    place = min(1.0, max(0.0, (mean - low) / (high - low))) if isfinite(high - low) else None
    if error < 1e-12:
        return None if place is None else _within(low, high, _wilson(place, n_clusters, Z_95))
    t = t_95(n_clusters - 1)
    lower, upper = mean - t * error, mean + t * error
    if place is None or (low <= lower and upper <= high):
        return Interval(max(low, lower), min(high, upper))
    worth = max(1.0, place * (1 - place) * ((high - low) / error) ** 2)
    lopsided = _within(low, high, _wilson(place, worth, t))
    return Interval(max(low, min(lower, lopsided.low)), min(high, max(upper, lopsided.high)))


def _within(low: float, high: float, share: Interval) -> Interval:
    return Interval(low + share.low * (high - low), low + share.high * (high - low))


def t_95(df: int) -> float:
    """The 97.5 % quantile of Student's t with `df` degrees of freedom, at least 1."""
    return t_quantile(df, 0.95)


@lru_cache(maxsize=1024)
def t_quantile(df: int, level: float) -> float:
    """The number that |T| of Student's t with `df` degrees of freedom, at least 1, stays below with chance `level`.

    Not from scipy: importing that took 0.6 s and 43 MB in the process that answers pages. A test compares the two.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    if df > 200:
        return _t_by_expansion(z, df)
    low, high = z, 2 * z
    while _t_between(high, df) < level:
        low, high = high, 2 * high
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_between(middle, df) < level else (low, middle)
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


def _t_by_expansion(z: float, df: int) -> float:
    """The quantile for many degrees of freedom, from that of the normal distribution. (Abramowitz and Stegun 26.7.5)

    To ten digits from 200 on at 95 %, to eight at 99.9 %.
    """
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * df**4)
    )


def failure_bound(n: int) -> float:
    """The highest rate of an event (one-sided, 95 %) that n trials without it allow, such as a failure; 1 when n is 0.

    1 - 0.05^(1/n), which the "rule of three" approximates as 3 / n.
    """
    return -expm1(log(0.05) / n) if n > 0 else 1.0


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Means over the `n_cases` cases that have at least `k` scored trials; None when there is no such case.

    The intervals are None where none was asked for, and below two cases.
    """

    k: int
    pass_at_k: float | None
    pass_hat_k: float | None
    n_cases: int
    at_interval: Interval | None = None
    hat_interval: Interval | None = None


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Chance that at least one of k trials passes, drawn from n with c passes; None when k exceeds n.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021). None, too, for k below 1 or c outside of 0 to n.
    """
    if not _is_defined(n, c, k):
        return None
    n_draws = _ways(n, k)
    # Whole numbers are subtracted first: exact, where 1 - C / C would round twice.
    return (n_draws - _ways(n - c, k)) / n_draws


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Chance that all of k trials pass, drawn from n with c passes; None when k exceeds n.

    C(c, k) / C(n, k) (tau-bench). None, too, for k below 1 or c outside of 0 to n.
    """
    return _ways(c, k) / _ways(n, k) if _is_defined(n, c, k) else None


_ways = lru_cache(maxsize=8_192)(comb)
"""Cases with the same number of trials ask for the same ones, with 300 digits each at 1,000 trials."""


def pass_curve(counts: Iterable[CaseCounts]) -> tuple[CurvePoint, ...]:
    """A point for each k, all over the same cases. Beyond 20 only powers of two and the last k."""
    rows, last = curve_rows(counts)
    return tuple(curve_point(rows, k) for k in curve_ks(last))


def curve_rows(counts: Iterable[CaseCounts]) -> tuple[list[CaseCounts], int]:
    """The cases that the curve is over, those with the same outcome put together, and its last k; 0 without a case.

    The last k is the fewest scored trials of a case, so that a lost trial makes the curve shorter and drops no case.
    Only cases with less than half as many trials as most others have are left out. (decision 023)
    """
    rows = _alike(counts)
    last = min((n for n, _, _ in rows if 2 * n >= _of_most(rows)), default=0)
    return [row for row in rows if row[0] >= last], last


def curve_point(counts: Sequence[CaseCounts], k: int) -> CurvePoint:
    """pass@k and pass^k as means over cases, never pooled; cases with fewer than k scored trials are left out."""
    eligible = [(n, c, n_cases) for n, c, n_cases in counts if _is_defined(n, c, k) and n_cases > 0]
    n_cases = sum(times for _, _, times in eligible)
    if not n_cases:
        return CurvePoint(k, None, None, 0)
    at_k = fsum((pass_at_k(n, c, k) or 0.0) * times for n, c, times in eligible) / n_cases
    hat_k = fsum((pass_hat_k(n, c, k) or 0.0) * times for n, c, times in eligible) / n_cases
    return CurvePoint(k, at_k, hat_k, n_cases)


def _alike(counts: Iterable[CaseCounts]) -> list[CaseCounts]:
    """The scored cases in order, those with the same outcome put together."""
    alike: Counter[tuple[int, int]] = Counter()
    for n, c, n_cases in counts:
        if n > 0 and n_cases > 0:
            alike[n, c] += n_cases
    return [(n, c, times) for (n, c), times in sorted(alike.items())]


def _of_most(rows: Sequence[CaseCounts]) -> int:
    """The largest number of trials that more than half of the cases have; 0 without a case."""
    remaining = sum(times for _, _, times in rows) // 2 + 1
    for n, _, times in reversed(rows):
        remaining -= times
        if remaining <= 0:
            return n
    return 0


def _is_defined(n: int, c: int, k: int) -> bool:
    return 1 <= k <= n and 0 <= c <= n


def curve_ks(largest: int) -> list[int]:
    """The k of a curve that ends at `largest`."""
    powers = [2**power for power in range(largest.bit_length()) if _DENSE_UP_TO < 2**power < largest]
    dense = range(1, min(largest, _DENSE_UP_TO) + 1)
    return [*dense, *powers, *([largest] if largest > _DENSE_UP_TO else [])]


def g_pass_at_k(n: int, c: int, k: int, share: float) -> float | None:
    """Chance that at least `share` of k trials pass, drawn from n with c passes; None when k exceeds n.

    `share` is above 0 and at most 1: share 1 is pass^k, share 1/k is pass@k. None, too, for another share, k below 1
    or c outside of 0 to n.
    """
    if not (1 <= k <= n and 0 <= c <= n and 0 < share <= 1):
        return None
    ways = (comb(c, i) * comb(n - c, k - i) for i in range(fewest_passes(k, share), min(c, k) + 1))
    return sum(ways) / comb(n, k)


def fewest_passes(k: int, share: float) -> int:
    """The number of k trials that make up `share`: 3 of 4 for 0.75. Exact where 0.7 x 10 is just above 7."""
    return max(1, ceil(share * k - 1e-9))


def sure_curve(counts: Iterable[CaseCounts]) -> tuple[CurvePoint, ...]:
    """`pass_curve` with an interval at each point."""
    rows, last = curve_rows(counts)
    return _sure([curve_point(rows, k) for k in curve_ks(last)], rows)


def point_at(counts: Iterable[CaseCounts], k: int) -> CurvePoint:
    """The point at `k` with its intervals: that of the curve, and beyond its end over the cases with `k` trials.

    Undefined where no more than half of the scored cases have `k` trials.
    """
    counts = _alike(counts)
    rows, last = curve_rows(counts)
    if not 1 <= k <= _of_most(counts):
        return CurvePoint(k, None, None, sum(times for n, _, times in counts if n >= k > 0))
    rows = [row for row in rows if row[0] >= k]
    ks = sorted({*curve_ks(max(k, last)), k})
    return _sure([curve_point(rows, each) for each in ks], rows)[ks.index(k)]


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
    draws = case_draws(times)
    return tuple(_interval(values, times, n_cases, draws) for values in series)


def expanded_level(n_cases: int) -> float:
    """The share of draws below the interval, at most 2.5 %, for at least two cases. (Hesterberg 2015, section 3.3)"""
    return erfc(t_95(n_cases - 1) * sqrt(n_cases / (n_cases - 1)) / sqrt(2)) / 2


def _sure(points: Sequence[CurvePoint], rows: Sequence[CaseCounts]) -> tuple[CurvePoint, ...]:
    """The points, by rising k, with their intervals, whose ends rise with k for pass@k and fall for pass^k."""
    series = [
        tuple(value(n, c, point.k) or 0.0 for n, c, _ in rows) for value in (pass_at_k, pass_hat_k) for point in points
    ]
    intervals = case_intervals(tuple(times for _, _, times in rows), tuple(series))
    at = [_of_few_cases(each, point.pass_at_k, point) for each, point in zip(intervals, points, strict=False)]
    hat = [
        _of_few_cases(each, point.pass_hat_k, point) for each, point in zip(intervals[len(at) :], points, strict=True)
    ]
    rate = rate_interval(rows) if len({n for n, _, _ in rows}) == 1 else None
    if rate and at[0]:  # of equally many trials pass@1 and pass^1 are the pass rate
        at = [rate, *(Interval(each.low, max(each.high, rate.high)) for each in at[1:] if each)]
        hat = [rate, *(Interval(min(each.low, rate.low), each.high) for each in hat[1:] if each)]
    return tuple(
        replace(point, at_interval=of_at, hat_interval=of_hat)
        for point, of_at, of_hat in zip(points, _rising(at), _rising(hat[::-1])[::-1], strict=True)
    )


def _of_few_cases(interval: Interval | None, value: float | None, point: CurvePoint) -> Interval | None:
    """The interval; where it reaches 0 or 1, at least that of all-or-nothing cases of the same number.

    From k = 2 on cases with quite different pass rates have almost the same value near 0 and 1. That they differ so
    little does not say that the next case is like them.
    """
    if interval is None or value is None or point.k == 1 or 0 < interval.low <= interval.high < 1:
        return interval
    all_or_nothing = _wilson(value, point.n_cases, Z_95)
    return Interval(min(interval.low, all_or_nothing.low), max(interval.high, all_or_nothing.high))


def _rising(intervals: Sequence[Interval | None]) -> list[Interval | None]:
    """The intervals of quantities in rising order.

    The low end of one holds for all after it, the high end for all before it.
    """
    present = [each for each in intervals if each is not None]
    if len(present) < len(intervals):
        return list(intervals)
    lows = accumulate((each.low for each in present), max)
    highs = list(accumulate((each.high for each in reversed(present)), min))[::-1]
    return [Interval(low, high) for low, high in zip(lows, highs, strict=True)]


def _interval(values: Series, times: tuple[int, ...], n_cases: int, draws: Sequence[Sequence[int]]) -> Interval:
    mean = fsum(map(mul, values, times)) / n_cases
    squares = fsum(n * (value - mean) ** 2 for value, n in zip(values, times, strict=True))
    means = sorted(sum(map(mul, values, draw)) for draw in draws)
    at = ceil(expanded_level(n_cases) * N_DRAWS)
    low, high = means[at] / n_cases, means[-1 - at] / n_cases
    student = mean_interval(mean=mean, n=n_cases, n_cases=n_cases, squares=squares, cluster_squares=squares)
    if student is not None and (squares < 1e-12 or min(student.low, 1 - student.high) <= 0):
        low, high = min(low, student.low), max(high, student.high)
    return Interval(min(max(low, 0.0), mean), max(min(high, 1.0), mean))


def speaks_by_sums(n_cases: int, squares: float, cubes: float) -> bool:
    """Whether sums over many cases give the quantiles of their draws: where single cases do not make the mean lopsided.

    `squares` and `cubes` are the sums of the powers of each case's deviation.
    """
    return n_cases > MAX_KINDS and abs(cubes) <= _LOPSIDED * squares * sqrt(squares)


def weighed_alike(row: MetricRow, case_means: Sequence[float]) -> MetricRow:
    """The scores of cases with different numbers of values, where each case weighs the same.

    The mean is that of the means of the cases, and the sums around it are as if each case had as many values.
    """
    n_cases, each = len(case_means), row.n / len(case_means)
    mean = fsum(case_means) / n_cases
    squares, cubes, fourths = (
        each**power * fsum((value - mean) ** power for value in case_means) for power in (2, 3, 4)
    )
    n_by_mean = Counter(case_means)
    kinds = tuple((1, value, n_by_mean[value]) for value in sorted(n_by_mean)) if len(n_by_mean) <= MAX_KINDS else ()
    return replace(
        row,
        mean=mean,
        squares=row.squares + row.n * (row.mean - mean) ** 2,
        cluster_squares=squares,
        cluster_cubes=cubes,
        cluster_fourths=fourths,
        kinds=kinds,
    )


def score_interval(row: MetricRow, low: float, high: float) -> Interval | None:
    """The interval of a mean score within its range, by drawing the cases again; None below two values.

    A score that is 0 or 1 is a share of trials and has the interval of a pass rate. A single case is judged by its
    trials. Where Student's interval leaves the range, its ends take part, as for pass@k, and where the draws do not
    reach far enough: of few cases, and of many with a few that outweigh them.
    """
    is_rate = (low, high) == (0.0, 1.0) and abs(row.squares - row.n * row.mean * (1 - row.mean)) <= 1e-9 * row.n
    if is_rate and row.n and row.n_cases in (1, row.n):  # a share of trials has one interval, whatever counts it
        return wilson(row.mean * row.n, row.n)
    student = mean_interval(
        mean=row.mean,
        n=row.n,
        n_cases=row.n_cases,
        squares=row.squares,
        cluster_squares=row.cluster_squares,
        low=low,
        high=high,
    )
    if student is None or is_rate or row.n_cases < 2 or row.cluster_squares <= 1e-24 * row.n**2:
        return student
    is_known = speaks_by_sums(row.n_cases, row.cluster_squares, row.cluster_cubes)
    bootstrap = _drawn_mean(row.kinds) if row.kinds else _mean_by_sums(row) if row.n_cases > MAX_KINDS else student
    ends = [max(bootstrap.low, low), min(bootstrap.high, high)]
    is_short = row.n_cases < FEW_CASES or not (row.kinds or is_known)
    if is_short or student.low <= low or student.high >= high:
        ends = [min(ends[0], student.low), max(ends[1], student.high)]
    return Interval(min(ends[0], row.mean), max(ends[1], row.mean))


@lru_cache(maxsize=1024)
def _drawn_mean(kinds: tuple[CaseScores, ...]) -> Interval:
    """The quantiles of the mean over the draws: a ratio, where cases have different numbers of values."""
    ns, totals, times = zip(*kinds, strict=True)
    n_cases = sum(times)
    draws = _few_draws(times) if n_cases <= MAX_KINDS else case_draws(times)
    means = sorted(sum(map(mul, totals, draw)) / sum(map(mul, ns, draw)) for draw in draws)
    at = ceil(expanded_level(n_cases) * N_DRAWS)
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
    draws = []
    for _ in range(N_DRAWS):
        draw = [0] * len(times)
        for kind in chance.choices(kinds, k=len(kinds)):
            draw[kind] += 1
        draws.append(draw)
    return draws


def case_draws(times: tuple[int, ...]) -> list[list[int]]:
    """How often each kind of case is drawn when as many cases as there are are drawn with replacement."""
    chance = Random(SEED)  # noqa: S311
    n_cases = sum(times)
    draws = []
    for _ in range(N_DRAWS):
        remaining, weight, draw = n_cases, n_cases, []
        for n in times[:-1]:
            n_of_kind = _binomial(chance, remaining, n / weight)
            draw.append(n_of_kind)
            remaining, weight = remaining - n_of_kind, weight - n
        draws.append([*draw, remaining])
    return draws


def _binomial(chance: Random, n: int, p: float) -> int:
    """Successes of n draws with chance p, exactly: the bits of all n draws are compared with those of p at once."""
    successes = 0
    while n and p > 0:
        p *= 2
        below = chance.getrandbits(n).bit_count()
        if p >= 1:
            successes, n, p = successes + below, n - below, p - 1
        else:
            n = below
    return successes
