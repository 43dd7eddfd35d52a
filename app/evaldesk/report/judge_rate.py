"""The pass rate behind a judge that errs. (Rogan and Gladen; reference/reliability_stats.md C1)"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """The judge's pass rate and what it probably stands for, both 0 to 1; `unclipped` may lie outside."""

    judged: float
    corrected: float
    unclipped: float

    @property
    def is_clipped(self) -> bool:
        """Whether the formula left 0 to 1: then the judge's error rates do not fit what it said here."""
        return self.corrected != self.unclipped


def correct_rate(judged: float, sensitivity: float, specificity: float) -> CorrectedRate | None:
    """(judged + specificity - 1) / (sensitivity + specificity - 1), clipped to 0 to 1.

    `sensitivity` is the share of good answers that the judge passes, `specificity` the share of bad ones that it
    fails. None when they add up to 1 or less: such a judge says nothing. The errors must have been measured on answers
    of the same agent.
    """
    skill = sensitivity + specificity - 1
    if skill <= 1e-12:
        return None
    unclipped = (judged + specificity - 1) / skill
    return CorrectedRate(judged, min(1.0, max(0.0, unclipped)), unclipped)
