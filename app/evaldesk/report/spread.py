"""Mean, deviation and range of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev


@dataclass(frozen=True, slots=True)
class Spread:
    """What n scores look like, in the unit of the score.

    `population_deviation` divides by n, as Osmosis reports it; `sample_deviation` by n - 1, None for a single score.
    """

    n: int
    mean: float
    low: float
    high: float
    population_deviation: float
    sample_deviation: float | None


def spread(values: Sequence[float]) -> Spread | None:
    """Mean, range and both deviations of finite scores; None when there is none."""
    if not values:
        return None
    mean = fmean(values)
    sample = float(stdev(values)) if len(values) > 1 else None
    return Spread(len(values), mean, min(values), max(values), float(pstdev(values)), sample)
