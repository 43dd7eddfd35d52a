"""An alarm for a pass rate that fell below a bar, which may be looked at after every conversation.

It sums, over every start, the odds for a lower rate than the bar by the results since then: a
Shiryaev-Roberts e-detector, whose mean number of results until a false alarm is at least 1 / alpha.
(reference/inbox.md section 5; Shin, Ramdas and Rinaldo 2024)
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from math import exp, log, log1p

ALPHA = 0.0001
"""One false alarm in 10,000 scored conversations at most, on average."""
N_STARTS = 500
"""The newest starts that are summed."""
_MOST_EVIDENCE = 700.0


def log_evidence(n_passed: int, n_failed: int, bar: float) -> float:
    """Log of the odds won by a bet that the pass rate lies below `bar`, between 0 and 1; 0 without a result.

    log(B(bar; passed + 1, failed + 1) / (bar bar^passed (1 - bar)^failed)), where B is the incomplete beta function and
    not regularised. Integrated by parts it is a sum of positive terms, added from the last one.
    """
    return _evidence_of(n_passed + n_failed, bar)[n_failed]


@lru_cache(maxsize=4 * N_STARTS)
def _evidence_of(n: int, bar: float) -> tuple[float, ...]:
    """The log evidence of `n` results, by the number of failed ones."""
    log_odds = log(bar) - log1p(-bar)
    row = [-log(n + 1)]
    for n_failed in range(1, n + 1):
        term = log(n_failed) + log_odds + row[-1]
        total = log1p(exp(term)) if term < _MOST_EVIDENCE else term
        row.append(total - log(n - n_failed + 1))
    return tuple(row)


@lru_cache(maxsize=4 * N_STARTS)
def _odds_of(n: int, bar: float) -> tuple[float, ...]:
    return tuple(exp(min(_MOST_EVIDENCE, each)) for each in _evidence_of(n, bar))


class RateAlarm:
    """The alarm at a bar, between 0 and 1, with at most `alpha` false alarms a result; it starts again after each.

    Raises ValueError where `bar` or `alpha` is not between 0 and 1.
    """

    def __init__(self, bar: float, alpha: float = ALPHA) -> None:
        if not (0 < bar < 1 and 0 < alpha < 1):
            raise ValueError(f"bar {bar} and alpha {alpha} must lie between 0 and 1")
        self._bar, self._log_limit = bar, -log(alpha)
        self._passes: deque[bool] = deque(maxlen=N_STARTS)
        self.log_sum = 0.0

    @property
    def evidence(self) -> float:
        """The share of the evidence that rings, on a scale of logarithms: 0 or less is none, 1 rings."""
        return self.log_sum / self._log_limit

    def add(self, is_passed: bool) -> bool:
        """Whether the alarm rings after one more result; then it starts again."""
        self._passes.append(is_passed)
        n_failed, total = 0, 0.0
        for n, passed in enumerate(reversed(self._passes), 1):
            n_failed += not passed
            total += _odds_of(n, self._bar)[n_failed]
        self.log_sum = log(total)
        if self.log_sum < self._log_limit:
            return False
        self._passes.clear()
        return True
