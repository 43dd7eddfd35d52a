"""How far all cases of a run go up or down together from day to day, in logits. (reference/forecasts.md 3)"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, fsum, log
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats

RunTrials: TypeAlias = Sequence[tuple[int, int]]
"""Scored and passed trials of each case in one run, in the order of the cases."""

FEWEST_RUNS = 5
LOGIT_STEPS = 10
"""Steps of the grid of rates in one logit."""
SIGMAS = tuple(step / 10 for step in range(11))
_SCALE = 0.25


@dataclass(frozen=True)
class DayShifts:
    """The standard deviation of the shift of a run, in logits: the weight of each of SIGMAS.

    Empty where it is not known: everything is then computed for one day.
    """

    weights: tuple[float, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether there were enough runs to tell."""
        return bool(self.weights)

    @property
    def sigma(self) -> float:
        """The mean of the standard deviation, in logits."""
        return fsum(sigma * weight for sigma, weight in zip(SIGMAS, self.weights, strict=False))

    @cached_property
    def shifts(self) -> tuple[tuple[int, float], ...]:
        """The shift of a run in steps of the grid of rates, and its chance."""
        if not self.weights:
            return ((0, 1.0),)
        chances: defaultdict[int, float] = defaultdict(float)
        for sigma, weight in zip(SIGMAS, self.weights, strict=True):
            for z, chance in _normal_cells() if weight else ():
                chances[round(sigma * z * LOGIT_STEPS)] += weight * chance
        return tuple(sorted(chances.items()))

    @cached_property
    def coarse(self) -> tuple[tuple[int, float], ...]:
        """The shifts reduced to at most seven, over which a forecast is averaged."""
        cells: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        below = 0.0
        for shift, chance in self.shifts:
            cells[min(6, int(7 * (below + chance / 2)))].append((shift, chance))
            below += chance
        return tuple(
            (round(fsum(shift * chance for shift, chance in cell) / total), total)
            for cell in cells.values()
            for total in [fsum(chance for _, chance in cell)]
        )


SAME_DAY = DayShifts()
ONE_SIGMA = DayShifts(tuple(float(sigma == 0.3) for sigma in SIGMAS))
"""Days that differ by 0.3 logits, 3 points at 90 %: what one might expect where it is not known."""


def _normal_cells() -> tuple[tuple[float, float], ...]:
    """Eight cells of the standard normal: their middles, -1.75 to 1.75, and their chances."""
    cuts = [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]
    ends = [0.0, *(NormalDist().cdf(edge) for edge in cuts), 1.0]
    return tuple((-1.75 + 0.5 * at, ends[at + 1] - ends[at]) for at in range(8))


def day_shifts(runs: Sequence[RunTrials]) -> DayShifts:
    """The variation of an unchanged agent's runs from day to day; not known below five runs.

    Nor is it where a run says almost nothing, since all of its cases always pass or always fail.
    """
    if len(runs) < FEWEST_RUNS:
        return SAME_DAY
    totals = [(sum(n for n, _ in case), sum(passed for _, passed in case)) for case in zip(*runs, strict=True)]
    factor = len(runs) / (len(runs) - 1)
    moves: list[tuple[float, float]] = []
    for run in runs:
        cases = [(n, total, c) for (n, _), (total, c) in zip(run, totals, strict=True) if n and total > 1]
        worth = fsum(n * c * (total - c) / (total * (total - 1)) for n, total, c in cases)
        if worth <= 0.5:
            return SAME_DAY
        noise = fsum(n * (total - n) / (total - 1) * c / total * (1 - c / total) for n, total, c in cases)
        mean_passes = fsum(n * c / total for (n, _), (total, c) in zip(run, totals, strict=True) if n)
        moves.append(((sum(passed for _, passed in run) - mean_passes) / worth, noise / worth**2))
    logs = [
        -sigma / _SCALE
        - fsum(log(sigma**2 + factor * noise) + factor * move**2 / (sigma**2 + factor * noise) for move, noise in moves)
        / (2 * factor)
        for sigma in SIGMAS
    ]
    weights = [exp(each - max(logs)) for each in logs]
    return DayShifts(tuple(weight / fsum(weights) for weight in weights))


def shift_rates(rates: Floats, steps: int) -> Floats:
    """The grid of rates on a day with this shift: 0 and 1 stay, and rates beyond the grid go to its ends."""
    import numpy as np

    if not steps:
        return rates
    places = np.clip(np.arange(1, len(rates) - 1) + steps, 1, len(rates) - 2)
    return np.concatenate((rates[:1], rates[places], rates[-1:]))
