"""Criteria from the fields of a form, and the fields that ask for given criteria."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from starlette.datastructures import ImmutableMultiDict

from evaldesk.errors import NAME_LIMIT, EvaldeskError, UsageError
from evaldesk.metrics import OptionInfo, build_metric, is_function, is_metric, metric_info, metric_options
from evaldesk.model import DEFAULT_CRITERIA, Case, Criterion, JsonValue, default_criteria
from evaldesk.pages.criteria.option_text import number_text, read_option, write_option
from evaldesk.pages.typed import json_object
from evaldesk.run_options import OWN
from evaldesk.wire import to_json

Typed: TypeAlias = ImmutableMultiDict[str, object]

FILLED = "filled"
OTHER = "other"
LABEL = "label"


def read_criteria(form: Typed) -> tuple[Criterion, ...] | None:
    """The ticked metrics with thresholds and options; None, the default ones, for a form that was not filled yet.

    Raises UsageError naming the first field that cannot be read.
    """
    if is_fresh(form):
        return None
    return tuple(typed_criterion(form, name) for name in ticked_metrics(form))


def write_criteria(criteria: Sequence[Criterion]) -> list[tuple[str, object]]:
    """The fields of a form that asks for `criteria`; options that have no field stand as JSON in one of their own."""
    fields: list[tuple[str, object]] = []
    for each in criteria:
        threshold = "" if each.threshold is None else number_text(each.threshold)
        fields += [("metric", each.metric), (f"{each.metric}.threshold", threshold)]
        if is_function(each) or not is_metric(each.metric):  # where it is found is not the browser's to say
            continue
        info_by_name = {info.name: info for info in metric_options(each.metric)}
        parsed_values = _as_read(each)
        for name in each.options.keys() & info_by_name.keys():
            text, keys = write_option(info_by_name[name], parsed_values.get(name, each.options[name]))
            fields += [(f"{each.metric}.{name}", text), (f"{each.metric}.{name}.keys", keys)]
        other = {name: value for name, value in each.options.items() if name not in info_by_name}
        if other:
            fields.append((f"{each.metric}.{OTHER}", to_json(other).decode()))
    return fields


def text_typed(form: Typed, name: str, default: str) -> str:
    """The text of a field, or `default` where nothing was sent under its name."""
    value = form.get(name, default)
    return value if isinstance(value, str) else default


def number_typed(text: str, name: str) -> float:
    """The number that `text` says. Raises UsageError naming the field."""
    try:
        value = float(text.strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"a number such as 0.8, not {text[:NAME_LIMIT]!r}", field=name)
    return value


def is_fresh(form: Typed) -> bool:
    """Whether the form was not filled yet, so that the default criteria are meant."""
    return not form.getlist("metric") and FILLED not in form


def is_strict(form: Typed) -> bool:
    """Whether a metric without anything to judge would be unscored; so it is as another tool judges, too."""
    return bool(text_typed(form, "strict", "")) or text_typed(form, "compat", "") not in ("", OWN)


def ticked_metrics(form: Typed, cases: Sequence[Case] = ()) -> list[str]:
    """The names of the ticked metrics; of the default ones for `cases` in a form that was not filled yet."""
    if is_fresh(form):
        return [criterion.metric for criterion in default_criteria(cases)]
    return [str(name) for name in form.getlist("metric")]


def was_shown(form: Typed, name: str) -> bool:
    """Whether the form had the threshold and the options of a metric: it has them once the metric is ticked."""
    return f"{name}.threshold" in form


def threshold_text(form: Typed, name: str) -> str:
    """The threshold as it was typed; the usual one where the form had no field for it yet."""
    threshold = next((each.threshold for each in DEFAULT_CRITERIA if each.metric == name), None)
    if threshold is None:
        threshold = metric_info(name).default_threshold if is_metric(name) else 1.0
    return text_typed(form, f"{name}.threshold", "" if threshold is None else f"{threshold:g}")


def typed_criterion(form: Typed, name: str) -> Criterion:
    """One metric with threshold and options as typed. Raises UsageError naming the field."""
    text = threshold_text(form, name).strip()
    threshold = number_typed(text, f"{name}.threshold") if text else None
    if not is_metric(name):
        return Criterion(name, threshold)
    options: dict[str, JsonValue] = {}
    for info in metric_options(name):
        value = _typed_option(form, f"{name}.{info.name}", info)
        if value != info.default:
            options[info.name] = value
    return Criterion(name, threshold, {**options, **_other_options(form, name)})


def _typed_option(form: Typed, place: str, info: OptionInfo) -> JsonValue:
    if place not in form:
        return False if info.kind == "switch" and was_shown(form, place.rpartition(".")[0]) else info.default
    try:
        return read_option(info, text_typed(form, place, ""), text_typed(form, f"{place}.keys", ""))
    except UsageError as error:
        raise UsageError(str(error), field=place) from error


def _other_options(form: Typed, name: str) -> Mapping[str, JsonValue]:
    place = f"{name}.{OTHER}"
    try:
        return json_object(text_typed(form, place, ""))
    except UsageError as error:
        raise UsageError(str(error), field=place) from error


def _as_read(criterion: Criterion) -> dict[str, JsonValue]:
    """The options as the metric takes them: `in-order` is IN_ORDER there."""
    try:
        metric = build_metric(criterion)
    except EvaldeskError:
        return {}
    return {name: getattr(metric, name) for name in criterion.options if hasattr(metric, name)}
