"""Scoring a trial: every criterion gives its scores, or says why it cannot."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence

from evaldesk.errors import MetricError
from evaldesk.metrics.criteria import build_metric, unscored_reason
from evaldesk.metrics.metric import MetricInfo
from evaldesk.model import Case, Criterion, ErrorRecord, Score, Transcript
from evaldesk.wire import plain, plain_text


def score_trial(transcript: Transcript, case: Case, criteria: Sequence[Criterion]) -> tuple[Score, ...]:
    """The scores of all criteria, each with threshold and `passed`.

    A criterion whose need the case does not meet is unscored with the reason; one that raises, or returns what is no
    score, gives an error score with its trace. Nothing is ever raised.
    """
    return tuple(score for criterion in criteria for score in _criterion_scores(transcript, case, criterion))


def _criterion_scores(transcript: Transcript, case: Case, criterion: Criterion) -> list[Score]:
    try:
        metric = build_metric(criterion)
        reason = unscored_reason(criterion, case)
        if reason:
            return [Score(criterion.metric, threshold=criterion.threshold, reason=reason)]
        scores = metric.score(transcript, case)
        _check_scores(metric.info, scores)
        return [_judged(score, criterion, metric.info) for score in scores]
    # Metrics may be anybody's code: whatever they do becomes a value on the trial.
    except (Exception, SystemExit) as error:
        return [_error_score(criterion, error)]


def _check_scores(info: MetricInfo, scores: object) -> None:
    if not isinstance(scores, list) or not all(isinstance(score, Score) for score in scores):
        raise MetricError(f"{info.name} must return a list of Score, got {scores!r:.200}")
    n_whole = sum(score.turn is None for score in scores)
    if n_whole != 1:
        raise MetricError(f"{info.name} must give one score for the whole trial, got {n_whole}")
    for score in scores:
        if score.value is not None and not _is_in_range(score.value, info):
            raise MetricError(f"{info.name} gave {score.value!r}, outside of {info.low:g} to {info.high:g}")


def _is_in_range(value: object, info: MetricInfo) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return info.low <= value <= info.high


def _judged(score: Score, criterion: Criterion, info: MetricInfo) -> Score:
    details = plain(score.details)
    return Score(
        criterion.metric,
        score.value,
        score.turn,
        criterion.threshold,
        None if score.value is None or score.error else info.passes(score.value, criterion.threshold),
        plain_text(str(score.reason)),
        details if isinstance(details, dict) else {},
        score.error,
    )


def _error_score(criterion: Criterion, error: BaseException) -> Score:
    message = plain_text(f"{type(error).__name__}: {_text(error)}")
    trace = plain_text("".join(traceback.format_exception(error)))
    return Score(
        criterion.metric,
        threshold=criterion.threshold,
        reason=f"The metric failed: {message}",
        error=ErrorRecord("metric", message, trace),
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be read)"
