"""pass@k and pass^k, for one case and as means over the cases of a run. (reference/reliability_stats.md C1)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, fsum
from typing import TypeAlias

CaseCounts: TypeAlias = tuple[int, int, int]
"""Cases with the same outcome: scored trials of each, passed trials of each, how many such cases."""

_DENSE_UP_TO = 20


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Means over the `n_cases` cases that have at least `k` scored trials; None when there is no such case."""

    k: int
    pass_at_k: float | None
    pass_hat_k: float | None
    n_cases: int


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
    """A point for each k that some case has enough trials for; beyond 20 only powers of two and the largest k."""
    alike: Counter[tuple[int, int]] = Counter()
    for n, c, n_cases in counts:
        if n > 0 and n_cases > 0:
            alike[n, c] += n_cases
    rows = [(n, c, n_cases) for (n, c), n_cases in alike.items()]
    return tuple(curve_point(rows, k) for k in _ks(max((n for n, _, _ in rows), default=0)))


def curve_point(counts: Sequence[CaseCounts], k: int) -> CurvePoint:
    """pass@k and pass^k as means over cases, never pooled; cases with fewer than k scored trials are left out."""
    eligible = [(n, c, n_cases) for n, c, n_cases in counts if _is_defined(n, c, k) and n_cases > 0]
    n_cases = sum(times for _, _, times in eligible)
    if not n_cases:
        return CurvePoint(k, None, None, 0)
    at_k = fsum((pass_at_k(n, c, k) or 0.0) * times for n, c, times in eligible) / n_cases
    hat_k = fsum((pass_hat_k(n, c, k) or 0.0) * times for n, c, times in eligible) / n_cases
    return CurvePoint(k, at_k, hat_k, n_cases)


def _is_defined(n: int, c: int, k: int) -> bool:
    return 1 <= k <= n and 0 <= c <= n


def _ks(largest: int) -> list[int]:
    powers = [2**power for power in range(largest.bit_length()) if _DENSE_UP_TO < 2**power < largest]
    dense = range(1, min(largest, _DENSE_UP_TO) + 1)
    return [*dense, *powers, *([largest] if largest > _DENSE_UP_TO else [])]
