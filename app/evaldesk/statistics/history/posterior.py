"""The posterior of pass rates from trials of cases: a beta-binomial model, integrated exactly on grids.

Case rates are Beta(mu k, (1 - mu) k) with k = (1 - rho) / rho; mu and rho are uniform on (0, 1) and averaged over, so
that 60 of 60, one case, or one trial each degenerate nothing. (reference/forecasts.md 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.statistics.intervals import CaseCounts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Places: TypeAlias = NDArray[np.intp]

LOGIT_END = 8.0
LOGIT_STEP = 0.1
_N_MU = 33
_MU_END = 6.0
_MOST_ZOOMS = 8


@lru_cache(maxsize=1)
def rate_grid() -> Floats:
    """The pass rates of the grid: 0, then logits from -8 to 8 in steps of 0.1, then 1."""
    import numpy as np

    logits = np.linspace(-LOGIT_END, LOGIT_END, round(2 * LOGIT_END / LOGIT_STEP) + 1)
    return np.concatenate(([0.0], 1 / (1 + np.exp(-logits)), [1.0]))


@dataclass(frozen=True, eq=False)
class Posterior:
    """The rates of cases after their trials, as weights on a grid of (mu, rho) rows and of rates.

    `kinds` are (scored, passed, number of such cases); `weights` those of the rows in the order of mu, then rho;
    `mu` and `rho` the values of each row. `prior` has the distribution of a rate in each row, `likelihood` that of the
    trials of each kind at each rate up to a factor, `evidence` their product by kind and row.
    """

    kinds: tuple[CaseCounts, ...]
    weights: Floats
    mu: Floats
    rho: Floats
    prior: Floats
    likelihood: Floats
    evidence: Floats

    @property
    def n_cases(self) -> int:
        """The number of cases."""
        return sum(times for _, _, times in self.kinds)

    @property
    def n_trials(self) -> int:
        """The trials of all cases."""
        return sum(n_scored * times for n_scored, _, times in self.kinds)

    @property
    def fewest_trials(self) -> int:
        """The trials of the case with the fewest."""
        return min(n_scored for n_scored, _, _ in self.kinds)

    @cached_property
    def of_kinds(self) -> Floats:
        """The distribution of the rate of a case of each kind, averaged over the rows."""
        return self.likelihood * ((self.weights / self.evidence) @ self.prior)

    @cached_property
    def case_means(self) -> Floats:
        """The mean rate of a case of each kind."""
        means: Floats = self.of_kinds @ rate_grid()
        return means

    @property
    def n_each(self) -> Floats:
        """The number of cases of each kind."""
        import numpy as np

        return np.array([times for _, _, times in self.kinds], float)

    def trial_variance(self, drop: float = 0.0) -> float:
        """The mean of p (1 - p) over cases and rates, each lower by `drop`."""
        import numpy as np

        rates = np.maximum(0.0, rate_grid() - drop)
        return float(np.average(self.of_kinds @ (rates * (1 - rates)), weights=self.n_each))

    def within_share(self) -> tuple[float, float, float]:
        """The share of the variance of a trial that lies within cases, 1 - rho: mean, and the ends of 90 %."""
        import numpy as np

        order = np.argsort(self.rho, kind="stable")[::-1]
        shares, sums = 1 - self.rho[order], np.cumsum(self.weights[order])
        low, high = (shares[min(len(sums) - 1, int(np.searchsorted(sums, end)))] for end in (0.05, 0.95))
        return float(self.weights @ (1 - self.rho)), float(low), float(high)

    @cached_property
    def main_rows(self) -> Places:
        """The likeliest rows with 99.9 % of the weight."""
        import numpy as np

        order = np.argsort(-self.weights, kind="stable")
        return order[: int(np.searchsorted(np.cumsum(self.weights[order]), 0.999)) + 1]


def posterior(kinds: Iterable[CaseCounts]) -> Posterior:
    """The posterior of cases with these scored and passed trials; a case without a trial is like the others."""
    return _posterior(tuple(kinds))


def posterior_of(trials: Iterable[tuple[int, int]]) -> Posterior:
    """The posterior of cases by the scored and passed trials of each; their kinds are in order."""
    return posterior((*case, times) for case, times in sorted(Counter(trials).items()))


@lru_cache(maxsize=64)
def _posterior(kinds: tuple[CaseCounts, ...]) -> Posterior:
    import numpy as np

    likelihood = _likelihood(kinds)
    middle, end = 0.0, _MU_END
    for round_ in range(_MOST_ZOOMS + 1):
        logits = np.linspace(middle - end, middle + end, _N_MU)
        posterior = _at(kinds, likelihood, logits)
        step = 2 * end / (_N_MU - 1)
        by_mu = posterior.weights.reshape(_N_MU, -1).sum(axis=1)
        mean = float(by_mu @ logits)
        sd = float(np.sqrt(by_mu @ (logits - mean) ** 2))
        if step <= sd or round_ == _MOST_ZOOMS:
            break
        middle, end = mean, 4 * max(sd, step / 2)
    return posterior


def _at(kinds: Sequence[CaseCounts], likelihood: Floats, mu_logits: Floats) -> Posterior:
    import numpy as np

    rho_logits = np.linspace(-5.0, 5.0, 21)
    mu, rho = (1 / (1 + np.exp(-each.ravel())) for each in np.meshgrid(mu_logits, rho_logits, indexing="ij"))
    prior = _prior(mu, rho)
    evidence = likelihood @ prior.T
    times = np.array([times for _, _, times in kinds], float)
    with np.errstate(divide="ignore"):
        logs = np.log(mu * (1 - mu) * rho * (1 - rho)) + times @ np.log(evidence)
    weights = np.exp(logs - logs.max())
    evidence[evidence == 0] = 1.0  # such a row has no weight
    return Posterior(tuple(kinds), weights / weights.sum(), mu, rho, prior, likelihood, evidence)


def _prior(mu: Floats, rho: Floats) -> Floats:
    """The distribution of a rate in each row: the beta density at the grid, and its tails at 0 and at 1."""
    import numpy as np

    k = (1 - rho) / rho
    a, b = mu * k, (1 - mu) * k
    rates = rate_grid()[1:-1]
    logs = np.empty((len(mu), len(rates) + 2))
    logs[:, 1:-1] = np.outer(a, np.log(rates)) + np.outer(b, np.log1p(-rates)) + np.log(LOGIT_STEP)
    logs[:, [1, -2]] -= np.log(2)
    logs[:, 0], logs[:, -1] = -LOGIT_END * a - np.log(a), -LOGIT_END * b - np.log(b)
    weights: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _likelihood(kinds: Sequence[CaseCounts]) -> Floats:
    """The likelihood of the trials of each kind at each rate, its greatest being 1."""
    import numpy as np

    n_scored, n_passed = (np.array([kind[at] for kind in kinds], float)[:, None] for at in (0, 1))
    rates = rate_grid()[1:-1]
    logs = np.empty((len(kinds), len(rates) + 2))
    logs[:, 1:-1] = n_passed * np.log(rates) + (n_scored - n_passed) * np.log1p(-rates)
    logs[:, :1] = np.where(n_passed == 0, 0.0, -np.inf)
    logs[:, -1:] = np.where(n_passed == n_scored, 0.0, -np.inf)
    likelihoods: Floats = np.exp(logs - logs.max(axis=1, keepdims=True))
    return likelihoods
