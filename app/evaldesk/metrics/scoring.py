"""Scoring a trial: every criterion gives its scores, or says why it cannot."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.errors import MetricError, ModelError
from evaldesk.metrics.criteria import build_metric, missing_of, missing_of_turn, unset_option
from evaldesk.metrics.functions.eval_function import is_function
from evaldesk.metrics.metric import Metric, MetricInfo
from evaldesk.model import Case, Criterion, ErrorRecord, Score, Transcript, Usage, plain_number
from evaldesk.model.bounds import is_score
from evaldesk.wire import plain, plain_text

NO_TIMEOUTS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Grading:
    """The scores of a trial, and one usage for each call of a judge."""

    scores: tuple[Score, ...]
    usages: tuple[Usage, ...] = ()


async def grade_trial(
    transcript: Transcript,
    case: Case,
    criteria: Sequence[Criterion],
    *,
    timeouts: Mapping[str, float] = NO_TIMEOUTS,
    strict: bool = False,
) -> Grading:
    """The scores of all criteria, each with threshold and `passed`, and the usage of judges.

    A criterion without anything to judge in the case is not applicable, with the reason; with `strict` it is unscored.
    An exception, a result that is no score, or a wait beyond the seconds of `timeouts` gives an error score with its
    trace. Only cancellation is ever raised.
    """
    with open_account() as usages:
        scores = [
            score for each in criteria for score in await _criterion_scores(transcript, case, each, timeouts, strict)
        ]
    return Grading(tuple(scores), tuple(usages))


def score_trial(
    transcript: Transcript, case: Case, criteria: Sequence[Criterion], *, strict: bool = False
) -> tuple[Score, ...]:
    """As `grade_trial`, at once, for criteria that await nothing. Raises MetricError for one that does."""
    grading = grade_trial(transcript, case, criteria, strict=strict)
    try:
        grading.send(None)
    except StopIteration as done:
        found: Grading = done.value
        return found.scores
    grading.close()
    raise MetricError("a metric of these criteria awaits something; use grade_trial")


async def _criterion_scores(
    transcript: Transcript, case: Case, criterion: Criterion, timeouts: Mapping[str, float], strict: bool
) -> list[Score]:
    try:
        metric = build_metric(criterion)
        option = unset_option(criterion)
        if option is not None:
            return [Score(criterion.metric, threshold=criterion.threshold, reason=f"Its option `{option}` is empty.")]
        reason = None if is_function(criterion) else missing_of(metric, case)
        if reason:
            return [Score(criterion.metric, threshold=criterion.threshold, reason=reason, is_applicable=strict)]
        found = metric.score(transcript, case)
        scores = await _within(timeouts.get(criterion.metric), found) if inspect.isawaitable(found) else found
        scores = [_plain_score(score) for score in scores] if isinstance(scores, list) else scores
        _check_scores(metric.info, scores)
        judged = [_judged(score, criterion, metric.info) for score in scores]
        return judged if strict or is_function(criterion) else _with_others(judged, criterion, metric, case)
    # Metrics may be any user's code: every failure becomes a value on the trial.
    except (Exception, SystemExit) as error:
        return [_error_score(criterion, error)]


def _with_others(scores: list[Score], criterion: Criterion, metric: Metric, case: Case) -> list[Score]:
    """The scores, and for each turn that asserts nothing one that says so, where the metric judges turn by turn."""
    judged = {score.turn: score for score in scores if score.turn is not None}
    if not judged or len(judged) >= len(case.turns):
        return scores
    for index, turn in enumerate(case.turns):
        reason = None if index in judged else missing_of_turn(metric, case, turn)
        if reason:
            judged[index] = Score(criterion.metric, None, index, criterion.threshold, None, reason, is_applicable=False)
    return [*(judged[index] for index in sorted(judged)), *(score for score in scores if score.turn is None)]


async def _within(timeout_s: float | None, scores: Awaitable[list[Score]]) -> list[Score]:
    if timeout_s is None:
        return await scores
    bound = asyncio.timeout(timeout_s)
    try:
        async with bound:
            return await scores
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise MetricError(f"not judged within {timeout_s:g} s") from error


def _check_scores(info: MetricInfo, scores: object) -> None:
    if not isinstance(scores, list) or not all(isinstance(score, Score) for score in scores):
        raise MetricError(f"{info.name} must return a list of Score, got {scores!r:.200}")
    n_whole = sum(score.turn is None for score in scores)
    if n_whole != 1:
        raise MetricError(f"{info.name} must give one score for the whole trial, got {n_whole}")
    for score in scores:
        if score.value is not None and not _is_in_range(score.value, info):
            raise MetricError(f"{info.name} gave {score.value!r}, outside of {info.low:g} to {info.high:g}")


def _plain_score(score: Any) -> Any:
    """The score with a number of Python in it; numpy's are as good."""
    if not isinstance(score, Score) or score.value is None or type(score.value) is float:
        return score
    value: Any = plain_number(score.value)
    return replace(score, value=value)


def _is_in_range(value: object, info: MetricInfo) -> bool:
    return is_score(value) and info.low <= value <= info.high


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
        error=ErrorRecord(error.kind if isinstance(error, ModelError) else "metric", message, trace),
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be read)"


_ACCOUNT: ContextVar[list[Usage] | None] = ContextVar("evaldesk_judge_account", default=None)


@contextmanager
def open_account() -> Iterator[list[Usage]]:
    """Collect the usage of the block, also of tasks that are started in it."""
    usages: list[Usage] = []
    token = _ACCOUNT.set(usages)
    try:
        yield usages
    finally:
        _ACCOUNT.reset(token)


def spend(usage: Usage) -> None:
    """Note one call of a judge; without an open account nothing is noted."""
    usages = _ACCOUNT.get()
    if usages is not None:
        usages.append(replace(usage, role="judge"))
