"""95 % intervals of one rate that keep a promise: exact, and safe to look at while a run goes on.

(reference/reliability_stats.md C1)
"""

from __future__ import annotations

from math import expm1, lgamma, log, log1p

from evaldesk.report.intervals import Interval

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

    1 - 0.05^(1/n), what the "rule of three" approximates as 3 / n.
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
