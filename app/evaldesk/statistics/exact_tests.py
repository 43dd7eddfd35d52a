"""Exact tests, by counting in whole numbers. (reference/reliability_stats.md C1)

Not from scipy, which would be imported into the process that answers pages: 0.9 s and 50 MB. Tests compare the two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import comb


def mcnemar(n_fixed: int, n_broken: int) -> float:
    """Chance of flips at least as one-sided when either way is as likely; 1 without a flip. (McNemar, exact)"""
    n = n_fixed + n_broken
    if n_fixed == n_broken:
        return 1.0
    ways = total = 1
    for i in range(min(n_fixed, n_broken)):
        # One step from C(n, i) to the next: counted anew each time, 10,000 flips took half a minute.
        ways = ways * (n - i) // (i + 1)
        total += ways
    return 2 * total / (1 << n)


ALPHA = 0.05


@lru_cache(maxsize=4096)
def fisher(c_before: int, n_before: int, c_after: int, n_after: int) -> float:
    """Chance of two rates at least as unlikely as these when both are the same; 1 without trials. (Fisher, exact)"""
    c = c_before + c_after
    observed = _ways(c_before, n_before, c_after, n_after)
    ways = (_ways(i, n_before, c - i, n_after) for i in range(max(0, c - n_after), min(n_before, c) + 1))
    return sum(each for each in ways if each <= observed) / comb(n_before + n_after, c)


@lru_cache(maxsize=4096)
def fisher_drop(c_before: int, n_before: int, c_after: int, n_after: int) -> float:
    """Chance of a first rate at least as far above the second when both are the same; 1 without trials. (one-sided)"""
    c = c_before + c_after
    ways = (_ways(i, n_before, c - i, n_after) for i in range(c_before, min(n_before, c) + 1))
    return sum(ways) / comb(n_before + n_after, c)


def sign_flips(differences: Sequence[int]) -> float:
    """Chance of a sum at least as far from 0 when each of at most 30 differences could have had the other sign.

    Every pattern of signs counts, in two halves: the sums of one are looked up among those of the other.
    """
    nonzero = [abs(difference) for difference in differences if difference]
    distance = abs(sum(differences))
    if not distance:
        return 1.0
    first_sums, second_sums = _sums(nonzero[::2]), _sums(nonzero[1::2])
    sums = sorted(second_sums)
    n_below = [0, *accumulate(second_sums[each] for each in sums)]
    n_near = sum(
        n * (n_below[bisect_left(sums, distance - each)] - n_below[bisect_right(sums, -distance - each)])
        for each, n in first_sums.items()
    )
    return 1 - n_near / (1 << len(nonzero))


def _sums(values: Sequence[int]) -> Counter[int]:
    """The sums over all patterns of signs, with the number of patterns of each: rates of few trials have few sums."""
    sums = Counter([0])
    for value in values:
        following: Counter[int] = Counter()
        for each, n in sums.items():
            following[each + value] += n
            following[each - value] += n
        sums = following
    return sums


def _ways(c_before: int, n_before: int, c_after: int, n_after: int) -> int:
    return comb(n_before, c_before) * comb(n_after, c_after)
