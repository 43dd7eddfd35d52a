"""Criteria made ready for a run: the choices of a browser, the places of functions, the judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.metrics import (
    FUNCTION_OPTION,
    METRICS,
    check_function,
    function_options,
    is_function,
    is_metric,
    metric_info,
)
from evaldesk.model import Criterion, JsonObject, JsonValue
from evaldesk.settings import Settings

JUDGE, MORE_JUDGES, JUDGE_OPTIONS = "judge_model", "more_judges", "judge_model_options"


def allowed_criteria(
    criteria: Sequence[Criterion], settings: Settings, known: Sequence[Criterion] = ()
) -> tuple[Criterion, ...]:
    """The criteria that a browser named, each checked against the settings.

    A function is named as in `[metrics]` of `evaldesk.toml`, or as one of `known`, the criteria of a stored run; its
    imports are looked up there. A judge is one of the allowed models, or as that run had it. Raises UsageError naming
    the field.
    """
    return tuple(_allowed(each, settings, {found.metric: found for found in known}) for each in criteria)


def ready_criteria(criteria: Sequence[Criterion], settings: Settings, root: str) -> tuple[Criterion, ...]:
    """The criteria as a run keeps them: functions with the root they are imported from, judges by their names.

    A judge that the criterion leaves open is the first of the allowed judges; without any it stays open, and ADK's
    own is asked. Raises UsageError for a function that is not where its name says.
    """
    return tuple(_ready(each, settings, root) for each in criteria)


def judges_of(criterion: Criterion) -> tuple[str, ...]:
    """The judges that the criterion names first; empty when it leaves them open, or has none."""
    given: Any = criterion.options.get(JUDGE_OPTIONS)
    nested: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    names = [criterion.options.get(JUDGE), nested.get(JUDGE), *_listed(nested.get("judge_models"))]
    return tuple(name for name in names if isinstance(name, str) and name)


def _allowed(criterion: Criterion, settings: Settings, known: Mapping[str, Criterion]) -> Criterion:
    if is_function(criterion):
        raise UsageError("a page cannot name a function by its module", field="metric")
    if not is_metric(criterion.metric):
        return replace(criterion, options=_function(criterion.metric, settings, known))
    if not metric_info(criterion.metric).has_judge:
        return criterion
    stored = known.get(criterion.metric, Criterion("")).options
    place = f"{criterion.metric}.{JUDGE}"
    if JUDGE_OPTIONS in criterion.options and criterion.options[JUDGE_OPTIONS] != stored.get(JUDGE_OPTIONS):
        raise UsageError(
            f"{JUDGE_OPTIONS} are for criteria files; a page chooses among the allowed judges", field=place
        )
    _check_judges([criterion.options.get(JUDGE)], [stored.get(JUDGE)], settings, place)
    more = _listed(criterion.options.get(MORE_JUDGES))
    _check_judges(more, _listed(stored.get(MORE_JUDGES)), settings, f"{criterion.metric}.{MORE_JUDGES}")
    if not settings.allowed_judges and not judges_of(criterion):
        raise UsageError(f"{criterion.metric} needs a judge; name one under judges in evaldesk.toml", field=place)
    return criterion


def _check_judges(judges: Sequence[object], stored: Sequence[object], settings: Settings, place: str) -> None:
    for judge in judges:
        if judge and judge not in stored and judge not in settings.allowed_judges:
            listed = ", ".join(settings.allowed_judges) or "none; add some under judges in evaldesk.toml"
            raise UsageError(f"{str(judge)[:80]!r} is not among the allowed judges: {listed}", field=place)


def _function(name: str, settings: Settings, known: Mapping[str, Criterion]) -> JsonObject:
    if name in settings.functions:
        return function_options(settings.functions[name])
    if name in known and is_function(known[name]):
        return known[name].options
    error = NotFoundError.among("metric", name, [*METRICS, *settings.functions])
    error.field = "metric"
    raise error


def _ready(criterion: Criterion, settings: Settings, root: str) -> Criterion:
    options: dict[str, JsonValue] = dict(criterion.options)
    if is_function(criterion):
        options |= {"root": options.get("root") or root} if options.get("root") or root else {}
        check_function(str(options[FUNCTION_OPTION]), str(options.get("root", "")), Path.cwd())
        return replace(criterion, options=options)
    if not is_metric(criterion.metric) or not metric_info(criterion.metric).has_judge:
        return criterion
    if judges_of(criterion) or not settings.allowed_judges:
        return criterion
    return replace(criterion, options={**options, JUDGE: settings.allowed_judges[0]})


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
