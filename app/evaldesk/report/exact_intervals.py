"""95 % intervals of one rate that keep a promise: exact, and safe to look at while a run goes on.

(reference/reliability_stats.md C1)
"""

from __future__ import annotations

from math import expm1, log

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
    if c <= 0:
        return 0.0
    from scipy.optimize import brentq
    from scipy.special import betaln, xlog1py, xlogy

    def evidence(rate: float) -> float:
        """Logarithm of the evidence against `rate`, above 0 where it is ruled out."""
        return float(betaln(1 + c, 1 + n - c) - xlogy(c, rate) - xlog1py(n - c, -rate) - log(_ODDS))

    return float(brentq(evidence, _LEAST_RATE, c / n))
