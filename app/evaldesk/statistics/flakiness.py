"""Cases that pass in one trial and fail in another, and failures too rare to have been seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import expm1, log1p

from evaldesk.statistics.intervals import CaseCounts

RARE_FAILURE = 0.1


@dataclass(frozen=True, slots=True)
class Flakiness:
    """How many of `n_known` cases, those with at least two scored trials, are flaky.

    `disagreement` is the mean chance, over these cases, that two trials of a case have different verdicts; None when
    `n_known` is 0. `n_unknown` cases have one scored trial: neither stable nor flaky.
    """

    n_flaky: int
    n_known: int
    n_unknown: int
    disagreement: float | None


def is_flaky(n: int, c: int) -> bool:
    """Whether some but not all of n scored trials passed."""
    return 0 < c < n


def disagreement(n: int, c: int) -> float | None:
    """Chance that two of n trials, of which c passed, have different verdicts; None below two trials.

    2 c (n-c) / (n (n-1)).
    """
    return 2 * c * (n - c) / (n * (n - 1)) if n > 1 else None


def flakiness(counts: Iterable[CaseCounts]) -> Flakiness:
    """Flaky cases of a run; those without a scored trial are left out."""
    rows = [row for row in counts if row[0] > 0 and row[2] > 0]
    known = [row for row in rows if row[0] > 1]
    n_known = sum(times for _, _, times in known)
    total = sum((disagreement(n, c) or 0.0) * times for n, c, times in known)
    return Flakiness(
        n_flaky=sum(times for n, c, times in known if is_flaky(n, c)),
        n_known=n_known,
        n_unknown=sum(times for n, _, times in rows if n == 1),
        disagreement=total / n_known if n_known else None,
    )


def chance_to_see(failure_rate: float, n: int) -> float:
    """Chance that n trials show at least one failure of a case that fails at `failure_rate`, 0 to 1."""
    if n < 1:
        return 0.0
    return -expm1(n * log1p(-failure_rate)) if failure_rate < 1 else 1.0
