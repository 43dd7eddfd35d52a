"""Rates of cases drawn from their posterior, the input of a forecast. (reference/forecasts.md 2)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from evaldesk.statistics.history.days import SAME_DAY, DayShifts, shift_rates
from evaldesk.statistics.history.posterior import Posterior, rate_grid

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats, Places

N_DRAWS = 256
SEED = 20_260_101
_FEWEST_EACH, _FEWEST = 3, 50


@dataclass(frozen=True, eq=False)
class Draws:
    """Rates of cases: `places` on the grid `rates`, one row a draw and one column a case.

    `cases` is the posterior that they are drawn from; None where rates are assumed. `days` are shifts of whole runs.
    """

    rates: Floats
    places: Places
    cases: Posterior | None = None
    days: DayShifts = SAME_DAY

    @property
    def n_cases(self) -> int:
        """The number of cases."""
        return int(self.places.shape[1])

    @property
    def case_means(self) -> Floats:
        """The mean rate of each case."""
        means: Floats = self.rates[self.places].mean(axis=0)
        return means

    @property
    def is_too_short(self) -> bool:
        """Whether its history has too few trials to know or to propose anything."""
        return self.cases is not None and missing_history(self.cases) > 0

    def counts(self, columns: Places | slice = slice(None)) -> Floats:
        """The number of these cases at each rate, in each draw."""
        import numpy as np

        places = self.places[:, columns]
        n_rows, size = len(places), len(self.rates)
        flat = places + size * np.arange(n_rows)[:, None]
        return np.bincount(flat.ravel(), minlength=n_rows * size).reshape(n_rows, size).astype(float)

    def thin(self, n: int) -> Draws:
        """About `n` of the draws, evenly taken."""
        return replace(self, places=self.places[:: max(1, len(self.places) // n)])

    def worse(self, drop: float) -> Draws:
        """The same cases of an agent whose rate is lower by `drop` in each."""
        import numpy as np

        if not drop:
            return self
        return replace(self, rates=np.maximum(0.0, self.rates - drop))

    def on_day(self, shift: int) -> Draws:
        """The same cases on a day with this shift, in steps of the grid."""
        return replace(self, rates=shift_rates(self.rates, shift))


def missing_history(cases: Posterior) -> int:
    """The trials of each case that a history lacks before it tells anything: three of each, and fifty in all."""
    of_all = -(-(_FEWEST - cases.n_trials) // cases.n_cases)
    return max(0, _FEWEST_EACH - cases.fewest_trials, of_all)


def assumed_rates(rates: Sequence[float]) -> Draws:
    """One draw in which each case has the rate that is assumed for it."""
    import numpy as np

    grid, places = np.unique(np.array(rates, float), return_inverse=True)
    return Draws(grid, places.reshape(1, -1))


def drawn_rates(cases: Posterior, days: DayShifts = SAME_DAY, n_draws: int = N_DRAWS) -> Draws:
    """Draws of the rates, the cases in the order of their kinds: a row of (mu, rho) first, then each case in it."""
    return Draws(rate_grid(), _places(cases, n_draws), cases, days)


@lru_cache(maxsize=16)
def _places(cases: Posterior, n_draws: int) -> Places:
    import numpy as np

    shares = (np.arange(n_draws) + 0.5) / n_draws
    sums = np.cumsum(cases.weights)
    rows = np.minimum(np.searchsorted(sums, shares * sums[-1]), len(sums) - 1)
    uniform = np.random.default_rng(SEED).random((n_draws, cases.n_cases))
    kind_of = np.repeat(np.arange(len(cases.kinds)), [times for _, _, times in cases.kinds])
    size = cases.prior.shape[1]
    places = np.empty((n_draws, cases.n_cases), np.intp)
    for row in np.unique(rows):
        of_row = np.flatnonzero(rows == row)
        ends = np.cumsum(cases.likelihood * cases.prior[row], axis=1)
        ends /= ends[:, -1:]
        # The kinds stand one above the other, so that one search finds the place of every case.
        flat = (ends + np.arange(len(ends))[:, None]).ravel()
        at = np.searchsorted(flat, uniform[of_row] + kind_of, side="right") - size * kind_of
        places[of_row] = np.clip(at, 0, size - 1)
    return places


def columns_of(keys: Iterable[int]) -> list[tuple[int, Places]]:
    """The columns of the cases with the same key, such as their number of trials."""
    import numpy as np

    values = np.array(list(keys))
    return [(int(key), np.flatnonzero(values == key)) for key in np.unique(values)]
