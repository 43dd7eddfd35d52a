"""G-Pass@k, between pass@k and pass^k: at least a share of k trials passes. (reference/reliability_stats.md C1)"""

from __future__ import annotations

from math import ceil, comb, fsum


def g_pass_at_k(n: int, c: int, k: int, share: float) -> float | None:
    """Chance that at least `share` of k trials pass, drawn from n of which c passed; None when k exceeds n.

    `share` is above 0 and at most 1: share 1 is pass^k, share 1/k is pass@k. None, too, for another share, k below 1
    or c outside of 0 to n.
    """
    if not (1 <= k <= n and 0 <= c <= n and 0 < share <= 1):
        return None
    return _chance_of(trials_needed(k, share), n, c, k)


def mg_pass_at_k(n: int, c: int, k: int) -> float | None:
    """Mean of G-Pass@k over the shares above one half; None where `g_pass_at_k` is.

    2 / k x the sum over i = ceil(k / 2) + 1 to k of the chance that at least i pass; 0 for k 1, which has no such i.
    """
    if not (1 <= k <= n and 0 <= c <= n):
        return None
    return 2 / k * fsum(_chance_of(i, n, c, k) for i in range(ceil(k / 2) + 1, k + 1))


def trials_needed(k: int, share: float) -> int:
    """How many of k trials make up `share`: 3 of 4 for 0.75. Not fooled by 0.7 x 10 being just above 7."""
    return max(1, ceil(share * k - 1e-9))


def _chance_of(at_least: int, n: int, c: int, k: int) -> float:
    return sum(comb(c, i) * comb(n - c, k - i) for i in range(at_least, min(c, k) + 1)) / comb(n, k)
