"""Change points of a series of pass rates, by permutation of its runs. (reference/sets.md 3)

The statistic is the largest difference of means over all splits with at least two runs on each side, divided by
sqrt(1/a + 1/b). Its p is the share of orders of the runs with one as large: of all orders up to EXACT runs, else of
DRAWS seeded ones, the order that was seen among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evaldesk.statistics.comparison import holm

if TYPE_CHECKING:
    from numpy.typing import NDArray

ChangeWord: TypeAlias = Literal["changed", "drifted"]
FEWEST_RUNS = 8
"""Runs below which no change point is looked for."""
LEAST_SIDE = 2
EXACT = 8
DRAWS = 4_999
SEED = 20_261_129
LEVEL = 0.05
MOST = 3
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Split:
    """The best split of a series: the runs before it, its statistic, its p, and the fit of a step and of a line."""

    n_before: int
    statistic: float
    p: float
    step_squares: float
    line_squares: float

    @property
    def word(self) -> ChangeWord:
        """`changed` where a step fits at least as well as a straight line, else `drifted`."""
        return "changed" if self.step_squares <= self.line_squares else "drifted"


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change after the run at `at`, counted from 0, of the runs from `start` up to `end`; `p` is Holm's."""

    at: int
    start: int
    end: int
    before: float
    after: float
    p: float
    word: ChangeWord


def best_split(rates: Sequence[float]) -> Split | None:
    """The best split of a series with its p; None below FEWEST_RUNS."""
    if len(rates) < FEWEST_RUNS:
        return None
    return _best_split(tuple(rates))


@lru_cache(maxsize=256)
def _best_split(rates: tuple[float, ...]) -> Split:
    import numpy

    n = len(rates)
    series = numpy.asarray(rates, dtype=float)
    statistics = _split_statistics(series[None, :])[0]
    # Of equal splits the first is named, whatever the last digits of its statistic are.
    place = next(at for at, value in enumerate(statistics) if value >= statistics.max() - ROUNDING)
    observed = float(statistics[place])
    if n <= EXACT:
        orders = numpy.array(list(permutations(rates)), dtype=float)
        p = float((_split_statistics(orders).max(axis=1) >= observed - ROUNDING).mean())
    else:
        chance = numpy.random.default_rng(SEED)
        orders = chance.permuted(numpy.tile(series, (DRAWS, 1)), axis=1)
        n_hits = int((_split_statistics(orders).max(axis=1) >= observed - ROUNDING).sum())
        p = (n_hits + 1) / (DRAWS + 1)
    n_before = place + LEAST_SIDE
    step = _squares(rates[:n_before]) + _squares(rates[n_before:])
    return Split(n_before, observed, p, step, _line_squares(rates))


def _split_statistics(orders: NDArray[Any]) -> NDArray[Any]:
    """The statistic of each split of each order, a row an order."""
    import numpy

    n = orders.shape[1]
    sizes = numpy.arange(LEAST_SIDE, n - LEAST_SIDE + 1)
    sums = numpy.cumsum(orders, axis=1)
    before, totals = sums[:, sizes - 1], sums[:, -1:]
    differences = numpy.abs(before / sizes - (totals - before) / (n - sizes))
    values: NDArray[Any] = differences / numpy.sqrt(1 / sizes + 1 / (n - sizes))
    return values


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _line_squares(values: Sequence[float]) -> float:
    n = len(values)
    middle, mean = (n - 1) / 2, math.fsum(values) / n
    spread = math.fsum((at - middle) ** 2 for at in range(n))
    slope = math.fsum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    return math.fsum((value - mean - slope * (at - middle)) ** 2 for at, value in enumerate(values))


def change_points(rates: Sequence[float]) -> list[ChangePoint]:
    """The change points of a series in order, MOST at most: each next one is looked for in the longer part.

    Empty where no test supports one. Holm's correction is over the tests that were made.
    """
    start, end = 0, len(rates)
    tests: list[tuple[int, int, Split]] = []
    while len(tests) < MOST and (candidate := best_split(rates[start:end])) is not None:
        tests.append((start, end, candidate))
        if candidate.p > LEVEL:
            break
        middle = start + candidate.n_before
        start, end = (start, middle) if middle - start >= end - middle else (middle, end)
    adjusted = holm([candidate.p for _, _, candidate in tests])
    points = []
    for (start, end, candidate), p in zip(tests, adjusted, strict=True):
        if p <= LEVEL:
            middle = start + candidate.n_before
            before, after = (math.fsum(part) / len(part) for part in (rates[start:middle], rates[middle:end]))
            points.append(ChangePoint(middle - 1, start, end, before, after, p, candidate.word))
    return sorted(points, key=lambda point: point.at)
