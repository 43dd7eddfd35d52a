"""Criteria: which metric, which options, which threshold; checked before a run, built in the worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches

import msgspec

from evaldesk.errors import UsageError
from evaldesk.metrics.functions.eval_function import build_function, is_function
from evaldesk.metrics.metric import Metric, MetricInfo, Need
from evaldesk.metrics.responses.json_match import is_json_reference
from evaldesk.metrics.responses.number import is_number_reference
from evaldesk.metrics.table import metric_class, metric_info, metric_kind
from evaldesk.metrics.turn_scores import has_calls, has_reference
from evaldesk.model import Case, Criterion, Expected, JsonValue, Turn
from evaldesk.wire import converted

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
}
"""The assertion that a turn must have for a metric with that need; a case needs one such turn."""
_NO_FINAL_STATE = "The case has no expected final state."


def check_criteria(criteria: Sequence[Criterion]) -> None:
    """Raise UsageError for the first criterion that cannot be built or used, or a metric that is named twice."""
    seen: set[str] = set()
    for criterion in criteria:
        build_metric(criterion)
        option = unset_option(criterion)
        if option is not None:
            raise UsageError(f"{criterion.metric} needs its option {option!r}", field=f"{criterion.metric}.{option}")
        if criterion.metric in seen:
            label = (
                "" if is_function(criterion) else f", or give one a label of its own: {metric_kind(criterion.metric)}/2"
            )
            raise UsageError(f"{criterion.metric} is named twice; keep one{label}", field=criterion.metric)
        seen.add(criterion.metric)


def build_metric(criterion: Criterion) -> Metric:
    """The metric with its options. Raises UsageError for unknown names, wrong options, impossible thresholds."""
    if is_function(criterion):
        function = build_function(criterion)
        _check_threshold(function.info, criterion.threshold)
        return function
    kind = metric_class(criterion.metric)
    _check_threshold(metric_info(criterion.metric), criterion.threshold)
    known: list[str] = [field.name for field in fields(kind)] if is_dataclass(kind) else []
    for option in criterion.options:
        if option not in known:
            raise UsageError(_unknown_option(criterion.metric, option, known), field=f"{criterion.metric}.{option}")
    try:
        return converted(dict(criterion.options), kind)
    except (msgspec.ValidationError, UsageError) as error:
        named = (name for name in criterion.options if f"$.{name}" in str(error) or name in str(error))
        option = getattr(error, "field", None) or next(named, "")
        raise UsageError(f"{criterion.metric}: {error}", field=f"{criterion.metric}.{option}") from error


def missing_reasons(criterion: Criterion, cases: Sequence[Case]) -> dict[str, str]:
    """Case id -> the missing assertion, for cases to which the criterion does not apply. Raises UsageError."""
    if is_function(criterion):
        return {}
    metric = build_metric(criterion)
    reasons = {case.id: missing_of(metric, case) for case in cases}
    return {case_id: reason for case_id, reason in reasons.items() if reason is not None}


def missing_of(metric: Metric, case: Case) -> str | None:
    """The missing assertion of the case, or None when the metric applies to it."""
    needs = _NEEDS_OF_TURNS.get(metric.info.needs)
    if needs and not any(needs[0](turn.expected) for turn in case.turns):
        return f"No turn of this case {needs[1]}."
    if metric.info.needs == "final_state" and case.final_state is None:
        return _NO_FINAL_STATE
    missing: Callable[[Case], str | None] | None = getattr(metric, "missing", None)
    return missing(case) if missing else None


def missing_of_turn(metric: Metric, case: Case, turn: Turn) -> str | None:
    """The missing assertion of the turn, or None when the metric applies to it."""
    needs = _NEEDS_OF_TURNS.get(metric.info.needs)
    if needs and not needs[0](turn.expected):
        return f"This turn {needs[2]}."
    missing: Callable[[Case, Turn], str | None] | None = getattr(metric, "missing_turn", None)
    return missing(case, turn) if missing else None


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


def _unknown_option(metric: str, option: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(option, known, n=1)
    if nearest:
        return f"{metric} has no option {option!r}; did you mean {nearest[0]!r}?"
    return f"{metric} has no option {option!r}; " + (f"it has: {', '.join(known)}" if known else "it has none")
