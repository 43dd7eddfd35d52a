"""Trials and scores that another tool recorded, as values of ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evaldesk.model import Criterion, ErrorRecord, JsonObject, Score, Transcript, TrialResult, TurnRecord, trial_verdict


def recorded_score(criterion: Criterion, value: float | None, reason: str = "", details: JsonObject = {}) -> Score:  # noqa: B006
    """The score of a whole trial; no value, or one that is no number, is unscored with `reason`."""
    if value is None or not math.isfinite(value):
        return Score(criterion.metric, threshold=criterion.threshold, reason=reason or "The file has no value.")
    passed = None if criterion.threshold is None else value >= criterion.threshold
    return Score(criterion.metric, value, None, criterion.threshold, passed, reason, details)


def recorded_trial(
    place: tuple[int, int],
    turns: tuple[TurnRecord, ...],
    *,
    scores: Sequence[Score] = (),
    criteria: Sequence[Criterion] = (),
    error: ErrorRecord | None = None,
    stop_reason: str = "",
    duration_ms: float | None = None,
    logs: str = "",
) -> TrialResult:
    """The trial at `place`, its case index and trial index. Without `duration_ms` the turns are added up."""
    case_index, trial_index = place
    return TrialResult(
        run_id=0,
        case_index=case_index,
        trial_index=trial_index,
        status="errored" if error else "finished",
        verdict=trial_verdict(scores, criteria, error),
        stop_reason=stop_reason,
        transcript=Transcript(turns),
        scores=tuple(scores),
        usages=tuple(usage for turn in turns for usage in turn.usages),
        duration_ms=sum(turn.duration_ms for turn in turns) if duration_ms is None else duration_ms,
        error=error,
        logs=logs,
    )
