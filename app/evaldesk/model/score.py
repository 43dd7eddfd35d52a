"""Scores of metrics, and the verdict of a trial that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evaldesk.model.evalset import JsonObject
from evaldesk.model.transcript import ErrorRecord

Verdict: TypeAlias = Literal["passed", "failed", "errored", "unscored"]
ScoreVerdict: TypeAlias = Verdict | Literal["not_applicable"]
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "errored", "unscored")


@dataclass(frozen=True, slots=True)
class Criterion:
    """A metric with its threshold and options. `threshold` is inclusive; None means the metric informs only."""

    metric: str
    threshold: float | None = None
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """The value of one metric for a turn, or for the whole trial when `turn` is None.

    `turn` counts from 0. `value` is None when the metric could not judge: `reason` then says why, and `error`
    is set when that was a failure of the metric rather than something missing. `is_applicable` is False where the case
    asserts nothing that the metric could judge; such a score counts in no verdict and in no mean. `passed` is None
    without a value or a threshold. `details` feeds the page that explains the score.
    """

    metric: str
    value: float | None = None
    turn: int | None = None
    threshold: float | None = None
    passed: bool | None = None
    reason: str = ""
    details: JsonObject = field(default_factory=dict)
    error: ErrorRecord | None = None
    is_applicable: bool = True

    @property
    def verdict(self) -> ScoreVerdict:
        """The verdict of this score alone."""
        if self.error:
            return "errored"
        if not self.is_applicable:
            return "not_applicable"
        if self.passed is None:
            return "unscored"
        return "passed" if self.passed else "failed"


def trial_verdict(scores: Sequence[Score], criteria: Sequence[Criterion], error: ErrorRecord | None) -> Verdict:
    """Any error makes a trial errored; else any applicable gating criterion without a value makes it unscored.

    Else all of them must pass. A trial to which no gating criterion applies is unscored. (DESIGN.md section 6)
    """
    gating = {criterion.metric for criterion in criteria if criterion.threshold is not None}
    whole = [score for score in scores if score.turn is None and score.metric in gating]
    if error or any(score.error for score in whole):
        return "errored"
    applicable = gating - {score.metric for score in whole if not score.is_applicable}
    judged = [score for score in whole if score.passed is not None]
    if not applicable or {score.metric for score in judged} != applicable:
        return "unscored"
    return "passed" if all(score.passed for score in judged) else "failed"


def adk_verdict(scores: Sequence[Score]) -> Verdict:
    """ADK's verdict on the same scores: criteria that were not evaluated are ignored. (reference/adk.md 2.4)"""
    whole = [score.passed for score in scores if score.turn is None and score.passed is not None]
    if not whole:
        return "unscored"
    return "passed" if all(whole) else "failed"
