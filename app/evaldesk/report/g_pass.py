"""G-Pass@k, between pass@k and pass^k: at least a share of k trials passes. (reference/reliability_stats.md C1)"""

from __future__ import annotations

from math import ceil, comb


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
