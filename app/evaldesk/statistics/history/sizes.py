"""The size of a drop, or the number of further cases, for a comparison case by case. (reference/forecasts.md 8)

At the level 5 %, two-sided, with power 80 %. Variances are those of one trial, the mean of p (1 - p) over cases.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from statistics import NormalDist

from evaldesk.statistics.intervals import t_95

FEWEST_CASES = 6
"""Below these neither signs nor flips can be told from chance: five the same way have p 0.063."""
ALIKE = 0.0
"""How much cases differ in how they drop: all alike. Where a quarter of them drops, four times as far, it is 3."""
_Z_80 = NormalDist().inv_cdf(0.8)


def smallest_drop(
    n_cases: int, n: float, before: float, after: Callable[[float], float], spread: float = ALIKE
) -> float | None:
    """The smallest drop, in steps of 0.01, that these cases with `n` trials show 4 times in 5; None without any.

    `after` gives the variance of a trial after a drop.
    """
    if n_cases < FEWEST_CASES:
        return None
    drops = (step / 100 for step in range(1, 101))
    return next(
        (drop for drop in drops if _is_enough(n_cases, (before + after(drop)) / n + spread * drop**2, drop)), None
    )


def cases_to_show(n_cases: int, difference: float, error: float) -> int:
    """The number of further such cases, about, to show a difference 4 times in 5; `error` is its standard error."""
    return max(1, ceil(7.849 * error**2 * n_cases / difference**2 + 2) - n_cases)


def _is_enough(n_cases: int, noise: float, drop: float) -> bool:
    return n_cases >= (t_95(n_cases - 1) + _Z_80) ** 2 * noise / drop**2
