"""The trials of each case in a run with a budget: even, or more where the outcome is less certain."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

PRIOR = 0.5
"""Added to the passed and the failed trials of a case (Jeffreys): one that always passed is not certain to."""
ROUNDING = 1e-9


def variance_of(n_passed: int, n_scored: int) -> float:
    """The expected p (1 - p) of a case with these earlier trials; 1/8 for a case without any."""
    passes, failures = n_passed + PRIOR, n_scored - n_passed + PRIOR
    return passes * failures / ((passes + failures) * (passes + failures + 1))


# Never from the run itself, so that the estimate has no bias: decision 174.
def allocate_trials(
    weights: Sequence[float], costs: Sequence[float], budget: float, *, least: int = 1, most: int = 1000
) -> tuple[int, ...]:
    """The trials of each case that make the sum of weight / trials least within the budget; `costs` are of one trial.

    Each case gets at least `least` trials, also above the budget, and at most `most`. With p (1 - p) as weights this is
    Neyman's allocation, trials in proportion to sqrt(weight / cost), in whole numbers without a rounding of its own:
    trial n + 1 goes where it takes most off for its price, weight / (n (n + 1) cost). That is Huntington and Hill's
    rule of equal proportions (Wright 2012). Equal cases differ by one trial at most, the first ones having more.
    """
    n_each = [least] * len(weights)
    remaining_budget = budget - least * sum(costs)
    queue = [
        (-weight / (least * (least + 1) * cost), index)
        for index, (weight, cost) in enumerate(zip(weights, costs, strict=True))
        if least < most
    ]
    heapify(queue)
    while queue:
        _, index = queue[0]
        if costs[index] > remaining_budget + ROUNDING or n_each[index] == most:
            heappop(queue)
            continue
        remaining_budget -= costs[index]
        n = n_each[index] = n_each[index] + 1
        heapreplace(queue, (-weights[index] / (n * (n + 1) * costs[index]), index))
    return tuple(n_each)
