"""Where the noise of a mean comes from, trials or cases that differ; and cases that now pass and now fail.

(reference/reliability_stats.md C1, variance split)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import expm1, fsum, inf, log1p, sqrt
from statistics import NormalDist

from evaldesk.statistics.intervals import CaseCounts


@dataclass(frozen=True, slots=True)
class NoiseSplit:
    """Variances of a single trial's verdict, passed as 1 and failed as 0, with the size of the sample.

    `within_cases` is between trials of the same case, `between_cases` between the true means of cases; `n_trials` is
    the mean number of trials a case.
    """

    within_cases: float
    between_cases: float
    n_cases: int
    n_trials: float

    @property
    def within_share(self) -> float | None:
        """Share of the variance of one trial that lies within cases, 0 to 1; None without any variance."""
        total = self.within_cases + self.between_cases
        return self.within_cases / total if total > 0 else None

    def error(self, n_cases: float, n_trials: float) -> float:
        """Standard error of the mean over `n_cases` cases with `n_trials` trials each, both above 0."""
        return sqrt((self.between_cases + self.within_cases / n_trials) / n_cases)


def split_pass_noise(counts: Iterable[CaseCounts]) -> NoiseSplit | None:
    """Split the variance of verdicts, 1 and 0; None with fewer than two scored cases or no case with two trials.

    By analysis of variance, so that cases may have different numbers of trials.
    """
    rows = [row for row in counts if row[0] > 0]
    n_cases, n = sum(times for _, _, times in rows), sum(n_scored * times for n_scored, _, times in rows)
    if n_cases < 2 or n <= n_cases:
        return None
    mean = fsum(c * times for _, c, times in rows) / n
    within = fsum(times * c * (n_scored - c) / n_scored for n_scored, c, times in rows) / (n - n_cases)
    among = fsum(n_scored * times * (c / n_scored - mean) ** 2 for n_scored, c, times in rows) / (n_cases - 1)
    size = (n - sum(n_scored * n_scored * times for n_scored, _, times in rows) / n) / (n_cases - 1)
    return NoiseSplit(within, max(0.0, (among - within) / size), n_cases, n / n_cases)


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

    Both runs have the same `n_cases` cases and `n_trials` trials a case. May exceed 1: then no difference can be seen,
    as with fewer than six cases, whose every pattern of signs is likelier than 5 %.
    """
    if n_cases < 1 or n_trials < 1:
        return None
    if n_cases < FEWEST_CASES:
        return inf
    z_sum = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    return z_sum * sqrt((case_variance + 2 * trial_variance / n_trials) / n_cases)


RARE_FAILURE = 0.1


@dataclass(frozen=True, slots=True)
class Flakiness:
    """The number of flaky cases among the `n_known` ones with at least two scored trials.

    `disagreement` is the mean chance, over these cases, that two trials of a case have different verdicts; None when
    `n_known` is 0. `n_unknown` cases have one scored trial: neither stable nor flaky.
    """

    n_flaky: int
    n_known: int
    n_unknown: int
    disagreement: float | None


def is_flaky(n: int, c: int) -> bool:
    """Whether some but not all of n scored trials passed."""
    return 0 < c < n


def disagreement(n: int, c: int) -> float | None:
    """Chance that two of n trials with c passes have different verdicts; None below two trials.

    2 c (n-c) / (n (n-1)).
    """
    return 2 * c * (n - c) / (n * (n - 1)) if n > 1 else None


def flakiness(counts: Iterable[CaseCounts]) -> Flakiness:
    """Flaky cases of a run; those without a scored trial are left out."""
    rows = list(counts)
    repeated_cases = [row for row in rows if row[0] > 1]
    n_known = sum(times for _, _, times in repeated_cases)
    total = sum((disagreement(n, c) or 0.0) * times for n, c, times in repeated_cases)
    return Flakiness(
        n_flaky=sum(times for n, c, times in repeated_cases if is_flaky(n, c)),
        n_known=n_known,
        n_unknown=sum(times for n, _, times in rows if n == 1),
        disagreement=total / n_known if n_known else None,
    )


def chance_to_see(failure_rate: float, n: int) -> float:
    """Chance that n trials show at least one failure of a case that fails at `failure_rate`, 0 to 1."""
    if n < 1:
        return 0.0
    return -expm1(n * log1p(-failure_rate)) if failure_rate < 1 else 1.0
