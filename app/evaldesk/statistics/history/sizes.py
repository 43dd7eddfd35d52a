"""The number of further cases for a comparison case by case. (reference/forecasts.md 8)

At the level 5 %, two-sided, with power 80 %. The detectable difference of a plan is in `power.py`.
"""

from __future__ import annotations

from math import ceil


def cases_to_show(n_cases: int, difference: float, error: float) -> int:
    """The number of further such cases, about, to show a difference 4 times in 5; `error` is its standard error."""
    return max(1, ceil(7.849 * error**2 * n_cases / difference**2 + 2) - n_cases)
