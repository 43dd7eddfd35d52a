"""The distribution of a sum over independent cases: by Fourier transform, for many values by the normal with skewness.

(reference/forecasts.md 2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lgamma, pi, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats, Places

MOST_EXACT_TRIALS = 400


@dataclass(frozen=True, eq=False)
class Sums:
    """The distribution of a sum from 0 to `most` in whole steps, one for each row.

    `chances` are those of each value; None where only the mean, the variance and the third cumulant are computed.
    """

    most: int
    mean: Floats
    variance: Floats
    third: Floats
    chances: Floats | None = None

    def at_most(self, value: int | Places) -> Floats:
        """The chance of this value or less, in each row; there is one value, or one a row.

        By the normal it is off by 0.0014 at most.
        """
        import numpy as np

        values = np.broadcast_to(np.asarray(value), self.mean.shape)
        chances = self._between(np.clip(values, 0, self.most - 1)) if self.most else np.ones(len(values))
        return np.where(values < 0, 0.0, np.where(values >= self.most, 1.0, chances))

    @cached_property
    def _cumulated(self) -> Floats | None:
        """The chances of each value or less; kept, since a search asks for many values of one sum."""
        import numpy as np

        return None if self.chances is None else np.clip(np.cumsum(self.chances, axis=1), 0.0, 1.0)

    def _between(self, value: Places) -> Floats:
        import numpy as np

        if self._cumulated is not None:
            chances: Floats = self._cumulated[np.arange(len(value)), value]
            return chances
        is_fixed = self.variance < 1e-12
        sd = np.sqrt(np.where(is_fixed, 1.0, self.variance))
        z = (value + 0.5 - self.mean) / sd
        skewed = self.third / sd**3 * (1 - z * z) * np.exp(-z * z / 2) / sqrt(2 * pi) / 6
        return np.where(is_fixed, value + 0.5 > self.mean, np.clip(normal_at_most(z) + skewed, 0.0, 1.0))


class ValueTable(NamedTuple):
    """Cases with the same values: `counts` of them at each rate, by row; `chances` of each of `values`, by rate."""

    counts: Floats
    chances: Floats
    values: Places


def sum_of(tables: Sequence[ValueTable], most_exact: int = MOST_EXACT_TRIALS) -> Sums:
    """The sum over independent cases, in each row."""
    import numpy as np

    n_rows = len(tables[0].counts)
    most = sum(int(table.counts[0].sum()) * int(table.values.max()) for table in tables)
    mean, variance, third = np.zeros(n_rows), np.zeros(n_rows), np.zeros(n_rows)
    for counts, chances, values in tables:
        means = chances @ values
        apart = values - means[:, None]
        mean += counts @ means
        variance += counts @ (chances * apart**2).sum(axis=1)
        third += counts @ (chances * apart**3).sum(axis=1)
    if most > most_exact:
        return Sums(most, mean, variance, third)
    logs = np.zeros((n_rows, (most + 1) // 2 + 1), np.complex128)
    angles = -2j * pi * np.arange(logs.shape[1]) / (most + 1)
    for counts, chances, values in tables:
        transform = chances @ np.exp(np.outer(values, angles))
        # A transform can be 0, whose logarithm has no place in a sum.
        logs += counts @ np.log(np.where(np.abs(transform) < 1e-200, 1e-200, transform))
    return Sums(most, mean, variance, third, np.fft.irfft(np.exp(logs), most + 1, axis=1))


def expected_squares(tables: Sequence[ValueTable], sums: Sums) -> Callable[[int, int], float]:
    """The expected sum of the squared values of the cases, by row and sum.

    Exact where the chances of each sum are computed; else by the line through the means.
    """
    import numpy as np

    n_rows = len(sums.mean)
    mean, along = np.zeros(n_rows), np.zeros(n_rows)
    for counts, chances, values in tables:
        means, of_square = chances @ values, chances @ values**2
        mean += counts @ of_square
        along += counts @ (chances @ values**3 - means * of_square)
    slope = along / np.where(sums.variance < 1e-12, 1.0, sums.variance)
    if sums.chances is None:
        return lambda row, value: float(mean[row] + slope[row] * (value - sums.mean[row]))
    size = sums.most + 1
    angles = -2j * pi * np.arange(size // 2 + 1) / size
    logs, ratios = np.zeros((n_rows, len(angles)), np.complex128), np.zeros((n_rows, len(angles)), np.complex128)
    for counts, chances, values in tables:
        waves = np.exp(np.outer(values, angles))
        transform = chances @ waves
        transform = np.where(np.abs(transform) < 1e-100, 1e-100, transform)
        logs += counts @ np.log(transform)
        ratios += counts @ ((chances @ (values[:, None] ** 2 * waves)) / transform)
    joint, chances_of = np.fft.irfft(np.exp(logs) * ratios, size, axis=1), sums.chances

    def squares_of(row: int, value: int) -> float:
        chance = chances_of[row, value]
        if chance > 1e-9:
            return float(joint[row, value] / chance)
        return float(mean[row] + slope[row] * (value - sums.mean[row]))

    return squares_of


def normal_at_most(z: Floats) -> Floats:
    """The standard normal distribution function, to seven places. (Abramowitz and Stegun 7.1.26)"""
    import numpy as np

    x = np.abs(z) / sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper = 0.5 * series * np.exp(-x * x)
    return np.where(z < 0, upper, 1 - upper)


def pass_chances(n: int, rates: Floats) -> Floats:
    """The chances of 0 to `n` passes at each rate."""
    import numpy as np

    passes = np.arange(n + 1)
    ways = np.array([lgamma(n + 1) - lgamma(c + 1) - lgamma(n - c + 1) for c in range(n + 1)])
    passed, failed = (np.log(np.clip(each, 1e-300, None))[:, None] for each in (rates, 1 - rates))
    chances: Floats = np.exp(ways + passes * passed + (n - passes) * failed)
    return chances
