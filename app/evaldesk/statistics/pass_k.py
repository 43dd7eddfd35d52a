"""pass@k and pass^k, for one case and as means over the cases of a run. (reference/reliability_stats.md C1)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, fsum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from evaldesk.model.conclusion import Interval


from math import ceil

CaseCounts: TypeAlias = tuple[int, int, int]
"""Cases with the same outcome: scored trials of each, passed trials of each, how many such cases."""

_DENSE_UP_TO = 20


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
    """Chance that at least one of k trials passes, drawn from n of which c passed; None when k exceeds n.

    1 - C(n-c, k) / C(n, k) (Chen et al. 2021). None, too, for k below 1 or c outside of 0 to n.
    """
    if not _is_defined(n, c, k):
        return None
    whole = comb(n, k)
    # Whole numbers are subtracted first: exact, where 1 - C / C would round twice.
    return (whole - comb(n - c, k)) / whole


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Chance that all of k trials pass, drawn from n of which c passed; None when k exceeds n.

    C(c, k) / C(n, k) (tau-bench). None, too, for k below 1 or c outside of 0 to n.
    """
    return comb(c, k) / comb(n, k) if _is_defined(n, c, k) else None


def pass_curve(counts: Iterable[CaseCounts]) -> tuple[CurvePoint, ...]:
    """A point for each k, all over the same cases: those with trials enough for the last one.

    It ends where more than half of the scored cases have trials enough. Beyond 20 only powers of two and the last k.
    """
    rows, last = curve_rows(counts)
    return tuple(curve_point(rows, k) for k in curve_ks(last))


def curve_rows(counts: Iterable[CaseCounts]) -> tuple[list[CaseCounts], int]:
    """The cases that the curve is over, those with the same outcome put together, and its last k; 0 without a case."""
    rows = _alike(counts)
    last = _last_k(rows)
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


def _last_k(rows: Sequence[CaseCounts]) -> int:
    """The largest k for which more than half of the cases have trials; 0 without a case."""
    left = sum(times for _, _, times in rows) // 2 + 1
    for n, _, times in reversed(rows):
        left -= times
        if left <= 0:
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
    """Chance that at least `share` of k trials pass, drawn from n of which c passed; None when k exceeds n.

    `share` is above 0 and at most 1: share 1 is pass^k, share 1/k is pass@k. None, too, for another share, k below 1
    or c outside of 0 to n.
    """
    if not (1 <= k <= n and 0 <= c <= n and 0 < share <= 1):
        return None
    ways = (comb(c, i) * comb(n - c, k - i) for i in range(trials_needed(k, share), min(c, k) + 1))
    return sum(ways) / comb(n, k)


def trials_needed(k: int, share: float) -> int:
    """How many of k trials make up `share`: 3 of 4 for 0.75. Not fooled by 0.7 x 10 being just above 7."""
    return max(1, ceil(share * k - 1e-9))
