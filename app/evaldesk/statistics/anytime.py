"""Answers that stay valid however often one looks and whenever one stops. (reference/decisions.md 2.4)

Each is the set of values that no bet could refute with odds of 20 to 1: wider than an interval that is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, inf, lgamma, log, log1p, sqrt

from evaldesk.model.conclusion import Interval

ALPHA = 0.05
_LEAST_RATE = 1e-300
_STEPS = 60


def anytime_interval(c: int, n: int, alpha: float = ALPHA) -> Interval:
    """The interval for c of n trials; 0 to 1 when n is 0.

    The rates p with B(1+c, 1+n-c) / (p^c (1-p)^(n-c)) below 1 / `alpha`. Wider than Wilson's.
    """
    if n <= 0:
        return Interval(0.0, 1.0)
    return Interval(_low(c, n, alpha), 1.0 - _low(n - c, n, alpha))


def _low(c: int, n: int, alpha: float) -> float:
    """The lowest rate that is not ruled out, by bisection: the evidence falls all the way up to c / n."""
    if c <= 0:
        return 0.0
    log_limit = lgamma(1 + c) + lgamma(1 + n - c) - lgamma(2 + n) + log(alpha)
    low, high = _LEAST_RATE, c / n
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        failures = (n - c) * log1p(-middle) if n > c else 0.0
        low, high = (middle, high) if log_limit - c * log(middle) - failures > 0 else (low, middle)
    return high


def is_above(rate: float, c: int, n: int) -> bool:
    """Whether the interval for c of n trials lies above `rate`, between 0 and 1: quicker than to look for its ends."""
    if c <= n * rate:
        return False
    evidence = lgamma(1 + c) + lgamma(1 + n - c) - lgamma(2 + n) - c * log(rate) - (n - c) * log1p(-rate)
    return evidence + log(ALPHA) >= 0


def sign_evidence(wins: int, losses: int) -> float:
    """The odds won by betting against "either way is as likely": 2^n B(wins + 1, losses + 1); 20 refute it."""
    return exp((wins + losses) * log(2) + lgamma(wins + 1) + lgamma(losses + 1) - lgamma(wins + losses + 2))


def difference_interval(differences: Sequence[float], alpha: float = ALPHA) -> Interval:
    """The interval for the mean of differences from -1 to 1, in the order in which they were seen; -1 to 1 for none.

    The hedged capital of Waudby-Smith and Ramdas (2024, theorem 3): each difference is bet on with a stake from the
    variance of earlier ones. A value that was once ruled out stays so.
    """
    shares = [(difference + 1) / 2 for difference in differences]
    bets = _Stakes(alpha)
    stakes = [bets.place_bet(share) for share in shares]
    low = _ruled_out_below(shares, stakes, alpha)
    high = 1.0 - _ruled_out_below([1 - share for share in shares], stakes, alpha)
    return Interval(2 * low - 1, 2 * high - 1)


class DifferenceSeen:
    """Whether differences from -1 to 1 tell, seen one by one: the answers of `difference_interval` after each.

    `is_better`: its low end lies above `margin`; `is_worse`: its high end lies below -`margin`; `is_not_worse`: its low
    end is not below that.
    """

    def __init__(self, margin: float, alpha: float = ALPHA, differences: Iterable[float] = ()) -> None:
        self.is_better = self.is_worse = False
        self.is_not_worse = margin >= 1
        self._log_bar, self._stakes = log(2 / alpha), _Stakes(alpha)
        self._means = ((1 + margin) / 2, (1 + margin) / 2, (1 - margin) / 2)
        self._capitals = [0.0, 0.0, 0.0]
        for difference in differences:
            self.add(difference)

    @property
    def is_told(self) -> bool:
        """Whether any of them tells."""
        return self.is_better or self.is_worse or self.is_not_worse

    def add(self, difference: float) -> None:
        """Bet on one more difference, and update the three answers."""
        share = (difference + 1) / 2
        stake = self._stakes.place_bet(share)
        for at, value in enumerate((share, 1 - share, share)):
            self._capitals[at] += _log_wealth(value, stake, self._means[at])
        is_out = [capital >= self._log_bar for capital in self._capitals]
        self.is_better, self.is_worse, self.is_not_worse = (
            was or now for was, now in zip((self.is_better, self.is_worse, self.is_not_worse), is_out, strict=True)
        )


class _Stakes:
    """The bet on each value, from the running mean and variance of the values before it."""

    def __init__(self, alpha: float) -> None:
        self._odds, self._n = 2 * log(2 / alpha), 0
        self._total, self._squares = 0.5, 0.25

    def place_bet(self, share: float) -> float:
        """The bet on the next value; updates the running mean and variance."""
        self._n += 1
        stake = sqrt(self._odds / (self._squares / self._n * self._n * log1p(self._n)))
        self._total += share
        self._squares += (share - self._total / (self._n + 1)) ** 2
        return stake


def _log_wealth(share: float, stake: float, mean: float) -> float:
    """The change of the log wealth by one bet."""
    return log1p(min(stake, 0.5 / mean if mean > 0 else inf) * (share - mean))


def _ruled_out_below(shares: Sequence[float], stakes: Sequence[float], alpha: float) -> float:
    """The mean below which every mean is ruled out, by bisection: a bet on more than it wins less, the higher it is."""
    low, high, log_bar = 0.0, 1.0, log(2 / alpha)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _wins(shares, stakes, middle, log_bar) else (low, middle)
    return low


def _wins(shares: Sequence[float], stakes: Sequence[float], mean: float, log_bar: float) -> bool:
    """Whether a bet that the mean is higher than `mean`, above 0, has at any step a log wealth of `log_bar`.

    It bets as `_log_wealth` does, whose call for each share would take most of the time.
    """
    highest_stake, capital = 0.5 / mean, 0.0
    for share, stake in zip(shares, stakes, strict=True):
        capital += log1p(min(stake, highest_stake) * (share - mean))
        if capital >= log_bar:
            return True
    return False
