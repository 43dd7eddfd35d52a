"""Criteria, checked before a run, and the scores that each gives a trial, or the reason why it gives none."""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from evaldesk.errors import MetricError, ModelError, UsageError
from evaldesk.matching import ALSO_ACCEPTED, AcceptedCall, Step, apply_allowances, steps_of
from evaldesk.metrics.functions.eval_function import build_function
from evaldesk.metrics.metric import (
    Metric,
    MetricInfo,
    Need,
    has_calls,
    has_intermediate,
    has_reference,
    is_function,
    metric_class,
    metric_info,
    metric_kind,
)
from evaldesk.metrics.pinned import after_pinned, judged_case, moved_score
from evaldesk.metrics.responses.json_match import is_json_reference
from evaldesk.metrics.responses.number import is_number_reference
from evaldesk.metrics.tools.call_words import accepted_calls, aligned_details
from evaldesk.model import (
    Case,
    Criterion,
    ErrorRecord,
    Expected,
    JsonObject,
    JsonValue,
    Score,
    Transcript,
    Turn,
    Usage,
    plain_number,
)
from evaldesk.model.evalset import LargeCases, LargeReasons, own_bars
from evaldesk.model.media import SHOWN_TYPES, Media
from evaldesk.model.pinned import n_pinned, pins_turns
from evaldesk.model.transcript import is_score
from evaldesk.wire import converted, plain_json, plain_text

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
    played, n_earlier = transcript, n_pinned(case)
    with open_account() as usages, showing_images(case), after_pinned(transcript.turns[:n_earlier]):
        if pins_turns(case):
            transcript, case = replace(played, turns=played.turns[n_earlier:]), judged_case(case)
        comparison = _Comparison(transcript, case)
        scores: list[Score] = []
        deciding = criteria if strict else criteria_of_case(case, criteria)
        by_metric = {each.metric: each for each in deciding}
        for criterion in criteria:
            each = by_metric.get(criterion.metric)
            if each is None:
                words = narrowing_words(deciding)
                scores.append(Score(criterion.metric, threshold=criterion.threshold, reason=words, is_applicable=False))
                continue
            with judging(each.metric):
                scores += await _criterion_scores(comparison, each, timeouts, strict)
    return Grading(tuple(moved_score(score, n_earlier) for score in scores), tuple(usages))


# A case only chooses among the criteria of its run: decision 516.
def criteria_of_case(case: Case, criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """Those of the criteria that judge the case, with its own thresholds; all where it names none that decides.

    Criteria without a threshold measure every case.
    """
    bars = own_bars(case)
    if not any(each.metric in bars for each in criteria if each.threshold is not None):
        return tuple(criteria)
    return tuple(
        each if each.threshold is None or (bar := bars[each.metric]) is None else replace(each, threshold=bar)
        for each in criteria
        if each.threshold is None or each.metric in bars
    )


def narrowing_words(deciding: Sequence[Criterion]) -> str:
    """Why a criterion does not judge a case that names others; `deciding` are those of `criteria_of_case`."""
    return f"This case is judged by {', '.join(each.metric for each in deciding if each.threshold is not None)} only."


class _Comparison:
    """A trial and its case, with accepted alternatives in the place of expected values (`also_accepted`)."""

    def __init__(self, transcript: Transcript, case: Case) -> None:
        self.transcript, self.written, self.case = transcript, case, case
        self._taken: Mapping[int, Sequence[AcceptedCall]] = {}
        self.problem: UsageError | None = None
        self.visibility = transcript.visibility
        if ALSO_ACCEPTED not in case.extra:
            return
        try:
            self.case, self._taken = apply_allowances(case, transcript)
        except UsageError as error:
            self.problem = error

    def explain(self, scores: list[Score], metric: Metric) -> list[Score]:
        """The scores with the calls that were accepted as expected ones; ADK's value is of the case alone."""
        if self.case is self.written:
            return scores
        own: dict[int | None, JsonObject] = {}
        if any("adk_value" in score.details for score in scores):
            alone = metric.score(self.transcript, self.written)
            own = {score.turn: score.details for score in alone} if isinstance(alone, list) else {}
        is_of_calls = "calls" in metric.info.parts
        return [self._explain_score(score, own.get(score.turn, {}), is_of_calls=is_of_calls) for score in scores]

    def _explain_score(self, score: Score, alone: JsonObject, *, is_of_calls: bool) -> Score:
        details = {**score.details, **{name: each for name, each in alone.items() if name.startswith("adk_")}}
        alternatives = self._taken.get(score.turn, ()) if score.turn is not None else ()
        if score.turn is None or not alternatives or not is_of_calls or "n_expected" not in details:
            return replace(score, details=details)
        expected, record = self.written.turns[score.turn].expected, self.transcript.turns[score.turn]
        steps: list[Step] = [("~", each.expected, each.actual) for each in alternatives]
        accepted_steps = [(step, each.because) for step, each in zip(steps, alternatives, strict=True)]
        aligned = aligned_details(steps_of(expected, record, alternatives), accepted_steps)
        metric_accepted = details.get("accepted")
        metric_rows = (
            [each for each in metric_accepted if isinstance(each, dict)] if isinstance(metric_accepted, list) else []
        )
        mine = aligned["accepted"] if isinstance(aligned["accepted"], list) else []
        return replace(
            score,
            reason=score.reason + accepted_calls(accepted_steps),
            details={**details, **aligned, "accepted": [*mine, *metric_rows]},
        )


def score_trial(
    transcript: Transcript, case: Case, criteria: Sequence[Criterion], *, strict: bool = False
) -> tuple[Score, ...]:
    """As `grade_trial`, at once. Raises MetricError for a criterion that awaits."""
    grading = grade_trial(transcript, case, criteria, strict=strict)
    try:
        grading.send(None)
    except StopIteration as stop:
        result: Grading = stop.value
        return result.scores
    grading.close()
    raise MetricError("a metric of these criteria awaits something; use grade_trial")


async def _criterion_scores(
    comparison: _Comparison, criterion: Criterion, timeouts: Mapping[str, float], strict: bool
) -> list[Score]:
    transcript, case = comparison.transcript, comparison.case
    try:
        if comparison.problem:
            raise comparison.problem
        metric = build_metric(criterion)
        option = unset_option(criterion)
        if option is not None:
            return [Score(criterion.metric, threshold=criterion.threshold, reason=f"Its option `{option}` is empty.")]
        reason = None if is_function(criterion) else missing_of(metric, case)
        if reason:
            return [Score(criterion.metric, threshold=criterion.threshold, reason=reason, is_applicable=strict)]
        if unseen := comparison.visibility.unjudged_reason(metric.info.parts):
            return [Score(criterion.metric, threshold=criterion.threshold, reason=unseen)]
        score_or_awaitable = metric.score(transcript, case)
        scores = (
            await _within(timeouts.get(criterion.metric), score_or_awaitable)
            if inspect.isawaitable(score_or_awaitable)
            else score_or_awaitable
        )
        scores = [_plain_score(score) for score in scores] if isinstance(scores, list) else scores
        _check_scores(metric.info, scores)
        scores = comparison.explain(scores, metric)
        thresholded_scores = [_with_threshold(score, criterion, metric.info) for score in scores]
        return (
            thresholded_scores
            if strict or is_function(criterion)
            else _with_others(thresholded_scores, criterion, metric, case)
        )
    # Metrics may be any user's code: every failure becomes a value on the trial.
    except (Exception, SystemExit) as error:
        return [_error_score(criterion, error)]


def _with_others(scores: list[Score], criterion: Criterion, metric: Metric, case: Case) -> list[Score]:
    """The scores, with a not applicable one for each turn that asserts nothing where the metric judges turns."""
    scores_by_turn = {score.turn: score for score in scores if score.turn is not None}
    if not scores_by_turn or len(scores_by_turn) >= len(case.turns):
        return scores
    for index, turn in enumerate(case.turns):
        reason = None if index in scores_by_turn else missing_of_turn(metric, case, turn)
        if reason:
            scores_by_turn[index] = Score(
                criterion.metric, None, index, criterion.threshold, None, reason, is_applicable=False
            )
    return [
        *(scores_by_turn[index] for index in sorted(scores_by_turn)),
        *(score for score in scores if score.turn is None),
    ]


async def _within(timeout_s: float | None, scores: Awaitable[list[Score]]) -> list[Score]:
    if timeout_s is None:
        return await scores
    timeout = asyncio.timeout(timeout_s)
    try:
        async with timeout:
            return await scores
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise MetricError(f"not judged within {timeout_s:g} s") from error


def _check_scores(info: MetricInfo, scores: object) -> None:
    if not isinstance(scores, list) or not all(isinstance(score, Score) for score in scores):
        raise MetricError(f"{info.name} must return a list of Score, got {scores!r:.200}")
    n_whole = sum(score.turn is None for score in scores)
    if n_whole != 1:
        raise MetricError(f"{info.name} must give one score for the whole trial, got {n_whole}")
    for score in scores:
        if score.value is not None and not (is_score(score.value) and info.low <= score.value <= info.high):
            raise MetricError(f"{info.name} gave {score.value!r}, outside of {info.low:g} to {info.high:g}")


def _plain_score(score: Any) -> Any:
    """The score with a number of Python in it; numpy's are as good."""
    if not isinstance(score, Score) or score.value is None or type(score.value) is float:
        return score
    value: Any = plain_number(score.value)
    return replace(score, value=value)


def _with_threshold(score: Score, criterion: Criterion, info: MetricInfo) -> Score:
    details = plain_json(score.details)
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


_JUDGED: ContextVar[tuple[str, int | None]] = ContextVar("evaldesk_judged", default=("", None))


def judged_here() -> tuple[str, int | None]:
    """The criterion that is scored here, and the index of the turn that its judge looks at, None for a whole trial."""
    return _JUDGED.get()


@contextmanager
def judging(criterion: str = "", turn: int | None = None) -> Iterator[None]:
    """Say for which criterion, else the one around, and which turn the judges inside are asked."""
    token = _JUDGED.set((criterion or _JUDGED.get()[0], turn))
    try:
        yield
    finally:
        _JUDGED.reset(token)


_IMAGES: ContextVar[tuple[Media, ...]] = ContextVar("evaldesk_judged_images", default=())
MAX_IMAGES = 10


def shown_images() -> tuple[Media, ...]:
    """The images of the user that judges of this trial may see."""
    return _IMAGES.get()


@contextmanager
def showing_images(case: Case, n_turns: int | None = None) -> Iterator[None]:
    """Show judges the first images of the case's messages, those of its first turns where a number is given."""
    media = (item for turn in case.turns[:n_turns] for item in turn.media)
    images = (item for item in media if item.mime_type in SHOWN_TYPES and item.kind == "image" and item.content())
    token = _IMAGES.set(tuple(islice(images, MAX_IMAGES)))
    try:
        yield
    finally:
        _IMAGES.reset(token)


_NEEDS_OF_TURNS: Mapping[Need, tuple[Callable[[Expected], bool], str, str]] = {
    "tool_calls": (has_calls, "says which tools should be called", "does not say which tools should be called"),
    "reference": (has_reference, "has a reference answer", "has no reference answer"),
    "reference_json": (
        is_json_reference,
        "has a reference answer that is JSON",
        "has no reference answer that is JSON",
    ),
    "reference_number": (
        is_number_reference,
        "has a reference answer with a number in it",
        "has no reference answer with a number in it",
    ),
    "intermediate": (has_intermediate, "has expected intermediate responses", "has no expected intermediate responses"),
}
"""The assertion that a turn must have for a metric with that need; a case needs one such turn."""
_NO_FINAL_STATE = "The case has no expected final state."


def check_criteria(criteria: Sequence[Criterion]) -> None:
    """Raise UsageError for the first criterion that cannot be built or used, or a metric that is named twice."""
    metrics: set[str] = set()
    for criterion in criteria:
        build_metric(criterion)
        option = unset_option(criterion)
        if option is not None:
            raise UsageError(f"{criterion.metric} needs its option {option!r}", field=f"{criterion.metric}.{option}")
        if criterion.metric in metrics:
            label = (
                "" if is_function(criterion) else f", or give one a label of its own: {metric_kind(criterion.metric)}/2"
            )
            raise UsageError(f"{criterion.metric} is named twice; keep one{label}", field=criterion.metric)
        metrics.add(criterion.metric)


def build_metric(criterion: Criterion) -> Metric:
    """The metric with its options. Raises UsageError for unknown names, wrong options, impossible thresholds."""
    if is_function(criterion):
        function = build_function(criterion)
        _check_threshold(function.info, criterion.threshold)
        return function
    kind = metric_class(criterion.metric)
    _check_threshold(metric_info(criterion.metric), criterion.threshold)
    known_options: list[str] = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    for option in criterion.options:
        if option not in known_options:
            raise UsageError(
                _unknown_option(criterion.metric, option, known_options), field=f"{criterion.metric}.{option}"
            )
    try:
        return converted(dict(criterion.options), kind)
    except (msgspec.ValidationError, UsageError) as error:
        option_names = (name for name in criterion.options if f"$.{name}" in str(error) or name in str(error))
        option = getattr(error, "field", None) or next(option_names, "")
        raise UsageError(f"{criterion.metric}: {error}", field=f"{criterion.metric}.{option}") from error


class _Question:
    """A metric and the cases of an eval set, which are the same only as long as they are the same object."""

    def __init__(self, criterion: Criterion, cases: Sequence[Case]) -> None:
        self.metric = build_metric(criterion)
        self.cases = cases
        has_own = hasattr(self.metric, "missing")
        scope = (criterion.metric, repr(criterion.options)) if has_own else (self.metric.info.needs,)
        self._key = (*scope, id(cases))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self._key == other._key


def missing_reasons(criterion: Criterion, cases: Sequence[Case]) -> Mapping[str, str]:
    """Case id -> the missing assertion, for cases to which the criterion does not apply. Raises UsageError.

    The last answers for whole eval sets are kept: the form of a run asks for every metric at each of its changes.
    """
    if is_function(criterion):
        return {}
    if isinstance(cases, LargeCases):
        if applies_by_part(criterion):
            return LargeReasons(cases, missing_reasons(criterion, cases.parts))
        cases = tuple(cases)
    question = _Question(criterion, cases)
    return _kept_reasons(question) if isinstance(cases, tuple) else _reasons(question)


def applies_by_part(criterion: Criterion) -> bool:
    """Whether the asserted part of a case tells if the criterion applies: not where a metric of others says so."""
    if is_function(criterion):
        return True
    metric = type(build_metric(criterion))
    return not hasattr(metric, "missing") or metric.__module__.startswith("evaldesk.")


def _reasons(question: _Question) -> Mapping[str, str]:
    reasons = {case.id: missing_of(question.metric, case) for case in question.cases}
    return {case_id: reason for case_id, reason in reasons.items() if reason is not None}


_kept_reasons = lru_cache(maxsize=64)(_reasons)  # about three forms; a kept question keeps its cases


# Planning and grading ask this same function: decision 024.
def missing_of(metric: Metric, case: Case) -> str | None:
    """The missing assertion of the case, or None when the metric applies to it."""
    case, needs = judged_case(case), _NEEDS_OF_TURNS.get(metric.info.needs)
    if needs and not any(needs[0](turn.expected) for turn in case.turns):
        return f"No turn of this case {needs[1]}."
    if metric.info.needs == "final_state" and case.final_state is None:
        return _NO_FINAL_STATE
    missing_assertion: Callable[[Case], str | None] | None = getattr(metric, "missing", None)
    return missing_assertion(case) if missing_assertion else None


def missing_of_turn(metric: Metric, case: Case, turn: Turn) -> str | None:
    """The missing assertion of the turn, or None when the metric applies to it."""
    needs = _NEEDS_OF_TURNS.get(metric.info.needs)
    if needs and not needs[0](turn.expected):
        return f"This turn {needs[2]}."
    missing_assertion: Callable[[Case, Turn], str | None] | None = getattr(metric, "missing_turn", None)
    return missing_assertion(case, turn) if missing_assertion else None


def unset_option(criterion: Criterion) -> str | None:
    """The first option without which the criterion has nothing to go by, and which it leaves empty; else None."""
    if is_function(criterion):
        return None
    options = metric_info(criterion.metric).required
    return next((option for option in options if _is_empty(criterion.options.get(option))), None)


def _is_empty(value: JsonValue) -> bool:
    return not value.strip() if isinstance(value, str) else not value


def _check_threshold(info: MetricInfo, threshold: float | None) -> None:
    if threshold is None:
        return
    problem = ""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not math.isfinite(threshold):
        problem = f"the threshold must be a number, got {threshold!r}"
    elif not info.low <= threshold <= info.high:
        range_words = (
            f"lies between {info.low:g} and {info.high:g}" if math.isfinite(info.high) else "is never negative"
        )
        problem = f"threshold {threshold:g} is out of range. A score {range_words}.{_nearby(info, threshold)}"
    if problem:
        raise UsageError(f"{info.name}: {problem}", field=f"{info.name}.threshold")


def _nearby(info: MetricInfo, threshold: float) -> str:
    """A threshold was probably meant in tenths or in percent."""
    if (info.low, info.high) != (0.0, 1.0) or not 1 < threshold <= 100:
        return ""
    return f" Did you mean {threshold / (10 if threshold < 10 else 100):g}?"


def _unknown_option(metric: str, option: str, known_options: Sequence[str]) -> str:
    nearest = get_close_matches(option, known_options, n=1)
    if nearest:
        return f"{metric} has no option {option!r}; did you mean {nearest[0]!r}?"
    return f"{metric} has no option {option!r}; " + (
        f"it has: {', '.join(known_options)}" if known_options else "it has none"
    )
