"""Scores what was played; apart from playing, so that a stored trial can be scored again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaldesk.engine.failures import failure
from evaldesk.model import Case, Criterion, TrialResult, trial_verdict


def grade(result: TrialResult, case: Case, criteria: Sequence[Criterion]) -> TrialResult:
    """`result` with scores and the verdict that follows. What did not finish is not scored."""
    from evaldesk.metrics import score_trial

    if result.status != "finished":
        return replace(result, scores=(), verdict=trial_verdict((), criteria, result.error))
    try:
        scores = tuple(score_trial(result.transcript, case, criteria))
    except BaseException as error:
        found = failure(error, "grading_failed")
        return replace(result, status="errored", scores=(), verdict="errored", error=found)
    return replace(result, scores=scores, verdict=trial_verdict(scores, criteria, result.error))
