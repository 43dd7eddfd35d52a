"""Where the noise of a mean comes from: trials of one case that differ, or cases that differ.

(reference/reliability_stats.md C1, variance split)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf, sqrt
from statistics import NormalDist, fmean

from evaldesk.statistics.intervals import CaseCounts


@dataclass(frozen=True, slots=True)
class NoiseSplit:
    """Variances of a single trial's score, in squared units of the score, and how much was seen.

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
        whole = self.within_cases + self.between_cases
        return self.within_cases / whole if whole > 0 else None

    def error(self, n_cases: float, n_trials: float) -> float:
        """Standard error of the mean over `n_cases` cases with `n_trials` trials each, both above 0."""
        return sqrt((self.between_cases + self.within_cases / n_trials) / n_cases)


def split_noise(scores_by_case: Iterable[Sequence[float]]) -> NoiseSplit | None:
    """Split the variance of scores; None with fewer than two cases or no case with two scores.

    By analysis of variance, so that cases may have different numbers of trials.
    """
    cases = [scores for scores in scores_by_case if scores]
    means = [fmean(scores) for scores in cases]
    squares = fsum((score - mean) ** 2 for scores, mean in zip(cases, means, strict=True) for score in scores)
    return _split([(len(scores), mean, 1) for scores, mean in zip(cases, means, strict=True)], squares)


def split_pass_noise(counts: Iterable[CaseCounts]) -> NoiseSplit | None:
    """`split_noise` of verdicts, passed as 1 and failed as 0."""
    rows = [row for row in counts if row[0] > 0 and row[2] > 0]
    squares = fsum(times * c * (n - c) / n for n, c, times in rows)
    return _split([(n, c / n, times) for n, c, times in rows], squares)


def _split(cases: Sequence[tuple[int, float, int]], squares: float) -> NoiseSplit | None:
    """`cases`: number of scores, their mean, how many such cases; `squares`: squared deviations within cases."""
    n_cases = sum(times for _, _, times in cases)
    n = sum(scored * times for scored, _, times in cases)
    if n_cases < 2 or n <= n_cases:
        return None
    mean = fsum(scored * own * times for scored, own, times in cases) / n
    within = squares / (n - n_cases)
    among = fsum(scored * times * (own - mean) ** 2 for scored, own, times in cases) / (n_cases - 1)
    size = (n - sum(scored * scored * times for scored, _, times in cases) / n) / (n_cases - 1)
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
