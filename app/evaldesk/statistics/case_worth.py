"""The worth of a case: how seldom it can fail, its information a dollar, and how well it tells agents apart.

(reference/sets.md 4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atanh, fsum, isclose, sqrt, tanh
from typing import Literal, TypeAlias

Z_95 = 1.959963984540054
LEAST_RUNS = 20
"""Runs from which a case is said to tell agents apart."""
LEAST_AGENTS = 5
"""Agent versions that these runs must have."""
Bearing: TypeAlias = Literal["tells agents apart", "cannot be told", "points the wrong way"]


def information_per_dollar(n_passed: int, n_scored: int, cost: float) -> float:
    """The variance of one more trial for each dollar; `cost` is that of a trial, above 0."""
    rate = (n_passed + 1) / (n_scored + 2)
    return rate * (1 - rate) / cost


@dataclass(frozen=True, slots=True)
class Discrimination:
    """The correlation of a case with the rest of its runs, and its 95 % interval after Fisher."""

    r: float
    low: float
    high: float

    @property
    def bearing(self) -> Bearing:
        """`tells agents apart` where the interval is above 0, `points the wrong way` where it is below."""
        return "tells agents apart" if self.low > 0 else "points the wrong way" if self.high < 0 else "cannot be told"


def discriminations(runs: Sequence[Mapping[str, float]]) -> dict[str, Discrimination | None]:
    """For each case that is in a run, its correlation with the mean of the other cases over the runs that have both.

    `runs` have the pass rate of each case. None where there are fewer than 4 such runs, or one side never varies.
    """
    sums = [(fsum(rates.values()), len(rates)) for rates in runs]
    case_ids = dict.fromkeys(case_id for rates in runs for case_id in rates)
    correlations: dict[str, Discrimination | None] = {}
    for case_id in case_ids:
        own, rest = [], []
        for rates, (total, n) in zip(runs, sums, strict=True):
            if case_id in rates and n > 1:
                own.append(rates[case_id])
                rest.append((total - rates[case_id]) / (n - 1))
        correlations[case_id] = correlate(own, rest)
    return correlations


def correlate(some: Sequence[float], others: Sequence[float]) -> Discrimination | None:
    """Pearson's correlation with Fisher's interval; None for fewer than 4 pairs, or where one side never varies."""
    n = len(some)
    if n < 4 or _is_constant(some) or _is_constant(others):
        return None
    mean, other_mean = fsum(some) / n, fsum(others) / n
    product = fsum((one - mean) * (other - other_mean) for one, other in zip(some, others, strict=True))
    squares = fsum((one - mean) ** 2 for one in some) * fsum((other - other_mean) ** 2 for other in others)
    r = max(-1.0, min(1.0, product / sqrt(squares)))
    if isclose(abs(r), 1.0, rel_tol=0, abs_tol=1e-12):
        return Discrimination(r, r, r)
    z, half = atanh(r), Z_95 / sqrt(n - 3)
    return Discrimination(r, tanh(z - half), tanh(z + half))


def _is_constant(values: Sequence[float]) -> bool:
    # The rest of a run is a difference of sums, which may leave a trace in the last digits.
    return all(isclose(value, values[0], rel_tol=0, abs_tol=1e-12) for value in values)
