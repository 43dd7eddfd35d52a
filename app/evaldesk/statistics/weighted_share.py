"""The share of failures in traffic, from a few conversations that were drawn from strata.

(reference/inbox.md section 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log, sqrt

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import Z_95, wilson


@dataclass(frozen=True, slots=True)
class ReadStratum:
    """A stratum of `size` conversations: `n_read` were drawn by chance and read, `n_failed` of them are failures.

    The counts are fractions where conversations stand for others (`read_stratum`). Raises ValueError where more failed
    than were read, or more were read than there are.
    """

    size: int
    n_read: float
    n_failed: float

    def __post_init__(self) -> None:
        if not 0 <= self.n_failed <= self.n_read <= self.size:
            raise ValueError(f"{self.n_failed} failed, {self.n_read} read, {self.size} in all: not in order")


def read_stratum(size: int, readings: Sequence[tuple[int, bool]]) -> ReadStratum:
    """A stratum of `size` conversations by its read ones: how many each stands for, and whether it is a failure.

    Readings that stand for different numbers count as (sum of weights)^2 / (sum of squared weights), the effective
    sample size of Kish 1965, with their weighted share of failures. Those of equal weights count as they are.
    """
    n_all, n_failed = sum(weight for weight, _ in readings), sum(weight for weight, is_failed in readings if is_failed)
    if not readings or n_all == len(readings):
        return ReadStratum(size, len(readings), n_failed)
    n_effective = n_all**2 / sum(weight**2 for weight, _ in readings)
    return ReadStratum(size, n_effective, n_effective * (n_failed / n_all))


@dataclass(frozen=True, slots=True)
class WeightedShare:
    """The estimated share of failures, 0 to 1, its standard error and its 95 % interval."""

    share: float
    error: float
    interval: Interval


def weighted_share(strata: Sequence[ReadStratum]) -> WeightedShare | None:
    """The share of failures over all conversations; None while a stratum, of at least one conversation, is unread.

    The mean of the shares of the strata, each weighted by its size. The variance has the finite population correction,
    and shares of (failed + 0.5) / (read + 1), so that 0 of 10 is no certainty; the interval is of the log odds. Without
    a failure, or without a success, it is Wilson's for as many conversations as have that variance.
    """
    strata = [stratum for stratum in strata if stratum.size]
    if not strata or any(not stratum.n_read for stratum in strata):
        return None
    n_all = sum(stratum.size for stratum in strata)
    share = fsum(stratum.size / n_all * stratum.n_failed / stratum.n_read for stratum in strata)
    if all(stratum.n_read == stratum.size for stratum in strata):
        return WeightedShare(share, 0.0, Interval(share, share))
    smoothed = [(stratum.n_failed + 0.5) / (stratum.n_read + 1) for stratum in strata]
    error = sqrt(
        fsum(
            (stratum.size / n_all) ** 2 * (1 - stratum.n_read / stratum.size) * each * (1 - each) / stratum.n_read
            for stratum, each in zip(strata, smoothed, strict=True)
        )
    )
    n_failed, n_read = sum(stratum.n_failed for stratum in strata), sum(stratum.n_read for stratum in strata)
    if n_failed in (0, n_read):
        mean = fsum(stratum.size / n_all * each for stratum, each in zip(strata, smoothed, strict=True))
        n_effective = mean * (1 - mean) / error**2
        return WeightedShare(float(n_failed > 0), error, wilson(n_effective if n_failed else 0, n_effective))
    half = Z_95 * error / (share * (1 - share))
    return WeightedShare(share, error, Interval(_shift(share, -half), _shift(share, half)))


def _shift(share: float, log_odds: float) -> float:
    """The share, between 0 and 1, whose log odds are higher by `log_odds`."""
    odds = log(share / (1 - share)) + log_odds
    return 1 / (1 + exp(-odds)) if odds > -700 else 0.0
