"""What a run will be able to tell, before it starts. (Miller's formula; reference/reliability_stats.md C1)"""

from __future__ import annotations

from math import inf, sqrt
from statistics import NormalDist

CASE_VARIANCE = 1 / 9
"""Variance over cases of the true difference between two agents, where nothing is known of it."""
TRIAL_VARIANCE = 1 / 6
"""Variance between trials of one case and agent, where nothing is known of it."""

FEWEST_CASES = 6
"""Below these neither signs nor flips can be told from chance: five the same way have p 0.063."""


def smallest_gap(
    n_cases: int,
    n_trials: int,
    *,
    case_variance: float = CASE_VARIANCE,
    trial_variance: float = TRIAL_VARIANCE,
) -> float | None:
    """The smallest difference of two rates seen with power 80 % at the level 5 %, in rates; None without any trial.

    Both runs have the same `n_cases` cases and `n_trials` trials a case. May exceed 1: then nothing can be seen, as
    with fewer than six cases, whose every pattern of signs is likelier than 5 %.
    """
    if n_cases < 1 or n_trials < 1:
        return None
    if n_cases < FEWEST_CASES:
        return inf
    z_sum = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    return z_sum * sqrt((case_variance + 2 * trial_variance / n_trials) / n_cases)
