"""Rates of cases drawn from their posterior: what a forecast is computed over. (reference/forecasts.md 2)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Literal, TypeAlias

from evaldesk.statistics.history.days import shifted
from evaldesk.statistics.history.posterior import Posterior, rate_grid

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats, Places

N_DRAWS = 256
SEED = 20_260_101
Known: TypeAlias = Literal["rarely", "often", "not known yet"]
_MOST_ADVISED = 200
OFTEN = 0.05
"""Above this share of false alarms a build loses its readers' trust."""


@dataclass(frozen=True, slots=True)
class Range:
    """A chance that is not known for certain: its mean, and the ends of 90 % of what it may be."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, chances: Floats) -> Range:
        """The range over draws."""
        import numpy as np

        low, high = np.quantile(chances, (0.05, 0.95))
        return cls(float(np.mean(chances)), float(low), float(high))

    @property
    def known(self) -> Known:
        """What it says of a share of false alarms."""
        if self.high <= OFTEN:
            return "rarely"
        return "often" if self.low > OFTEN else "not known yet"

    def trials_to_know(self, n: float) -> int:
        """About how many trials a case tell whether it is above OFTEN, after `n` of them: at most 200."""
        apart = max(0.02, abs(self.mean - OFTEN))
        return min(_MOST_ADVISED, ceil(n * max(1.5, ((self.high - self.low) / 2 / apart) ** 2)))


@dataclass(frozen=True, eq=False)
class Draws:
    """Rates of cases: `places` on the grid `rates`, one row a draw and one column a case."""

    rates: Floats
    places: Places

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return int(self.places.shape[1])

    @property
    def of_cases(self) -> Floats:
        """The rate of each case in each draw."""
        found: Floats = self.rates[self.places]
        return found

    def counts(self, columns: Places | slice = slice(None)) -> Floats:
        """How many of these cases have each rate, in each draw."""
        import numpy as np

        places = self.places[:, columns]
        n_rows, size = len(places), len(self.rates)
        flat = places + size * np.arange(n_rows)[:, None]
        return np.bincount(flat.ravel(), minlength=n_rows * size).reshape(n_rows, size).astype(float)

    def worse(self, drop: float) -> Draws:
        """The same cases of an agent whose rate is lower by `drop` in each."""
        import numpy as np

        return replace(self, rates=np.maximum(0.0, self.rates - drop))

    def on_day(self, shift: int) -> Draws:
        """The same cases on a day with this shift, in steps of the grid."""
        return replace(self, rates=shifted(self.rates, shift))


def assumed_rates(rates: Sequence[float]) -> Draws:
    """One draw in which each case has the rate that is assumed for it."""
    import numpy as np

    grid, places = np.unique(np.array(rates, float), return_inverse=True)
    return Draws(grid, places.reshape(1, -1))


def drawn_rates(cases: Posterior, n_draws: int = N_DRAWS) -> Draws:
    """Draws of the rates, the cases in the order of their kinds: a row of (mu, rho) first, then each case in it."""
    return Draws(rate_grid(), _places(cases, n_draws))


@lru_cache(maxsize=16)
def _places(cases: Posterior, n_draws: int) -> Places:
    import numpy as np

    shares = (np.arange(n_draws) + 0.5) / n_draws
    sums = np.cumsum(cases.weights)
    rows = np.minimum(np.searchsorted(sums, shares * sums[-1]), len(sums) - 1)
    uniform = np.random.default_rng(SEED).random((n_draws, cases.n_cases))
    kind_of = np.repeat(np.arange(len(cases.kinds)), [times for _, _, times in cases.kinds])
    size = cases.prior.shape[1]
    found = np.empty((n_draws, cases.n_cases), np.intp)
    for row in np.unique(rows):
        of_row = np.flatnonzero(rows == row)
        ends = np.cumsum(cases.likelihood * cases.prior[row], axis=1)
        ends /= ends[:, -1:]
        # The kinds stand one above the other, so that one search finds the place of every case.
        flat = (ends + np.arange(len(ends))[:, None]).ravel()
        at = np.searchsorted(flat, uniform[of_row] + kind_of, side="right") - size * kind_of
        found[of_row] = np.clip(at, 0, size - 1)
    return found


def columns_of(keys: Iterable[int]) -> list[tuple[int, Places]]:
    """The columns of the cases with the same key, such as their number of trials."""
    import numpy as np

    values = np.array(list(keys))
    return [(int(key), np.flatnonzero(values == key)) for key in np.unique(values)]
