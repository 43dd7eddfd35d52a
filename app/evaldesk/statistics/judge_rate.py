"""The pass rate behind a judge that errs. (Rogan and Gladen; Lee et al. 2025; reference/reliability_stats.md C1)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum, sqrt

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import Z_95

MIN_LABELS = 10
"""The labels that each stratum gets at least."""


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """The judge's pass rate and its estimate of the true one, both 0 to 1; `unclipped` may lie outside.

    `interval` is how far the labels, from which the judge's errors are known, leave that open.
    """

    judged_rate: float
    corrected: float
    unclipped: float
    interval: Interval | None = None

    @property
    def is_clipped(self) -> bool:
        """Whether the formula left 0 to 1: then the judge's error rates do not fit its verdicts here."""
        return self.corrected != self.unclipped

    @property
    def of_failures(self) -> CorrectedRate:
        """The same for the share that the judge fails."""
        could = Interval(1 - self.interval.high, 1 - self.interval.low) if self.interval else None
        return CorrectedRate(1 - self.judged_rate, 1 - self.corrected, 1 - self.unclipped, could)


def correct_rate(judged_rate: float, sensitivity: float, specificity: float) -> CorrectedRate | None:
    """(judged + specificity - 1) / (sensitivity + specificity - 1), clipped to 0 to 1.

    `sensitivity` is the share of good answers that the judge passes, `specificity` the share of bad ones that it
    fails. None when they add up to 1 or less: such a judge says nothing. The errors must have been measured on answers
    of the same agent.
    """
    skill = sensitivity + specificity - 1
    if skill <= 1e-12:
        return None
    unclipped = (judged_rate + specificity - 1) / skill
    return CorrectedRate(judged_rate, min(1.0, max(0.0, unclipped)), unclipped)


def corrected_interval(judged_rate: float, good: tuple[int, int], bad: tuple[int, int]) -> Interval:
    """The 95 % interval of the true pass rate of the judged trials.

    `good` are the answers with a good label that the judge passes, and all of them; `bad` those with a bad label that
    it fails, and all of them. One more of each outcome is counted than was seen, so that few labels without an error
    promise no perfect judge.
    """
    right_of_good, right_of_bad = ((right + 1) / (n + 2) for right, n in (good, bad))
    skill = right_of_good + right_of_bad - 1
    if skill <= 1e-12:
        return Interval(0.0, 1.0)
    rate = min(1.0, max(0.0, (judged_rate + right_of_bad - 1) / skill))
    of_good = rate**2 * right_of_good * (1 - right_of_good) / (good[1] + 2)
    of_bad = (1 - rate) ** 2 * right_of_bad * (1 - right_of_bad) / (bad[1] + 2)
    half = Z_95 * sqrt(of_good + of_bad) / skill
    return Interval(max(0.0, rate - half), min(1.0, rate + half))


def labels_to_add(half_width: float, strata: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """The labels that are missing for an interval of this half width, 0 to 1, over the judge's verdicts.

    `strata` are (trials, labelled, good among them), one for each verdict of the judge. Shares of good ones are
    smoothed after Laplace. Every stratum gets at least MIN_LABELS in all, and none more than it has trials.
    (reference/failure_modes.md, from mode to judge)
    """
    n_all = sum(n for n, _, _ in strata)
    if not n_all:
        return tuple(0 for _ in strata)
    rows = [(n / n_all, (good + 1) / (labelled + 2)) for n, labelled, good in strata]
    label_counts = neyman_allocation(labels_for_half_width(half_width, rows), rows)
    return tuple(
        max(0, min(n, max(ceil(each), MIN_LABELS)) - labelled)
        for each, (n, labelled, _) in zip(label_counts, strata, strict=True)
    )


def neyman_allocation(n_labels: int, strata: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Labels for each stratum of (weight, share of good ones), most where labels differ most. (Neyman 1934)"""
    spread = [weight * sqrt(share * (1 - share)) for weight, share in strata]
    total = fsum(spread)
    if not total:
        return tuple(n_labels * weight for weight, _ in strata)
    return tuple(n_labels * each / total for each in spread)


def labels_for_half_width(half_width: float, strata: Sequence[tuple[float, float]]) -> int:
    """The labels that are needed for an interval of this half width, over strata of (weight, share of good ones)."""
    spread = fsum(weight * sqrt(share * (1 - share)) for weight, share in strata)
    return ceil((Z_95 * spread / half_width) ** 2)
