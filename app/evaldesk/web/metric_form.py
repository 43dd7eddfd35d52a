"""Metrics on a form: under what they need, with their options as fields, and what was ticked and typed read back."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaldesk.errors import EvaldeskError
from evaldesk.metrics import (
    METRICS,
    MetricInfo,
    OptionInfo,
    is_metric,
    metric_info,
    metric_kind,
    metric_label,
    metric_options,
    unscored_reasons,
)
from evaldesk.model import DEFAULT_CRITERIA, Case, Criterion
from evaldesk.report import counted_words
from evaldesk.web.criteria_form import FILLED, LABEL, OTHER, Typed, text_typed, ticked_metrics, typed_criterion
from evaldesk.web.option_text import LISTED, write_option

MAX_NAMED = 5
AREAS = frozenset({"long_text", "json", "list", "modes", "values", "patterns", "tolerances"})
RARE = frozenset({"modes", "values", "patterns", "tolerances"})
GROUPS: Mapping[str, str] = {
    "tool_calls": "Needs expected calls",
    "reference": "Needs a reference answer",
    "final_state": "Needs a final state",
    "nothing": "Needs nothing of a case",
    "functions": "Your own functions",
    "judge": "Needs a judge",
    "effort": "What a trial takes: needs nothing, informs unless it gets a limit",
}
USUAL = frozenset({"tool_calls", "reference"})
_MET: Mapping[str, tuple[str, str, str]] = {
    "tool_calls": ("says", "say", "which tools to call"),
    "reference": ("has", "have", "a reference"),
    "reference_json": ("has", "have", "a reference in JSON"),
    "reference_number": ("has", "have", "a number in the reference"),
    "final_state": ("says", "say", "what the final state should be"),
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What the settings add to the metrics of the table: models that may judge, functions by their names."""

    judges: Sequence[str] = ()
    functions: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option of a metric: `shape` is select, switch, number, text or area; `keys` are typed beside a select."""

    field: str
    label: str
    explanation: str
    shape: str
    value: str
    choices: tuple[tuple[str, str], ...] = ()
    keys: str | None = None
    step: str = "any"
    low: str = ""
    high: str = ""
    example: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class MetricField:
    """A metric on the form; `rare` are options behind a disclosure, `unscored` says which cases it cannot judge.

    `label` is the one in its name, as it was typed; None for the metric itself, of which there can be more.
    """

    name: str
    title: str
    summary: str
    threshold: str
    is_higher_better: bool
    is_checked: bool
    options: tuple[OptionField, ...]
    rare: tuple[OptionField, ...]
    met: str
    unscored: str
    is_unavailable: bool
    label: str | None = None

    def has_rare(self, problems: Mapping[str, str]) -> bool:
        """Whether the options behind the disclosure say anything, or are wrong."""
        return any(option.value or problems.get(option.field) for option in self.rare)


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics with the same need; `tag` says how many cases meet it."""

    title: str
    tag: str
    metrics: tuple[MetricField, ...]
    is_usual: bool = False

    def is_open(self, problems: Mapping[str, str]) -> bool:
        """Whether its metrics are in sight: those that most people take, ticked ones, wrong ones."""
        names = {name.partition(".")[0] for name, said in problems.items() if said}
        return self.is_usual or any(metric.is_checked or metric.name in names for metric in self.metrics)


def metric_groups(typed: Typed, cases: Sequence[Case], offer: Offer | None = None) -> tuple[MetricGroup, ...]:
    """Every metric under what it needs, with what it will not be able to judge in `cases`.

    A ticked metric that is not offered (any more) stands among the functions, so that it is not lost in silence.
    """
    offer = offer or Offer()
    ticked = dict.fromkeys(ticked_metrics(typed))
    found: dict[str, list[MetricField]] = {name: [] for name in GROUPS}
    for name in _shown(ticked):
        info = metric_info(name)
        found[_group(info)].append(_metric_field(typed, info, name in ticked, cases, offer))
    for name in dict.fromkeys([*offer.functions, *(name for name in ticked if not is_metric(name))]):
        found["functions"].append(_function_field(typed, name, name in ticked, offer))
    return tuple(
        MetricGroup(
            GROUPS[group],
            _group_tag(group, metrics, cases, offer),
            tuple(metrics),
            group in USUAL,
        )
        for group, metrics in found.items()
        if metrics
    )


def unscored_words(unscored: Mapping[str, str], n_cases: int) -> str:
    """Which cases a metric will not judge, and why."""
    if not unscored:
        return ""
    reason = next(iter(unscored.values()))
    if len(unscored) == n_cases:
        return f"Every case would be unscored. {reason}"
    named = ", ".join(list(unscored)[:MAX_NAMED]) + (" and more" if len(unscored) > MAX_NAMED else "")
    return f"{counted_words(len(unscored), n_cases, 'case')} would be unscored and could not pass: {named}. {reason}"


def _shown(ticked: Iterable[str]) -> Iterator[str]:
    """Every metric, those with a label behind the metric itself."""
    more = [name for name in ticked if is_metric(name) and name not in METRICS]
    for kind in METRICS:
        yield kind
        yield from (name for name in more if metric_kind(name) == kind)


def _group(info: MetricInfo) -> str:
    if info.has_judge:
        return "judge"
    if info.needs == "nothing" and info.default_threshold is None:
        return "effort"
    return info.needs.partition("_json")[0].partition("_number")[0]


def _group_tag(group: str, metrics: Sequence[MetricField], cases: Sequence[Case], offer: Offer) -> str:
    if group == "judge":
        return "" if offer.judges else "none is allowed yet: name one under judges in evaldesk.toml"
    if group not in _MET or not cases:
        return ""
    n_met = len(cases) - len(unscored_reasons(Criterion(metrics[0].name), cases))
    return _met_words(n_met, len(cases), group)


def _met_words(n: int, n_all: int, need: str) -> str:
    one, many, what = _MET[need]
    return f"{counted_words(n, n_all, 'case')} {one if n == 1 else many} {what}"


def _metric_field(typed: Typed, info: MetricInfo, is_checked: bool, cases: Sequence[Case], offer: Offer) -> MetricField:
    unscored = _unscored(typed, info.name, is_checked, cases)
    fields = [(each.kind, _option_field(typed, info, each, offer)) for each in metric_options(info.name)]
    default = next((each.threshold for each in DEFAULT_CRITERIA if each.metric == info.name), info.default_threshold)
    usual_range = (info.low, info.high) == (0.0, 1.0) or math.isinf(info.high)
    return MetricField(
        name=info.name,
        title=info.title,
        summary=info.summary if usual_range else f"{info.summary} Scores {info.low:g} to {info.high:g}.",
        threshold=text_typed(typed, f"{info.name}.threshold", "" if default is None else f"{default:g}"),
        is_higher_better=info.is_higher_better,
        is_checked=is_checked,
        options=tuple([field for kind, field in fields if kind not in RARE]),
        rare=(*(field for kind, field in fields if kind in RARE), *_other_field(typed, info.name)),
        met=_met_words(len(cases) - len(unscored), len(cases), info.needs) if info.needs in _MET and unscored else "",
        unscored=unscored_words(unscored, len(cases)),
        is_unavailable=bool(cases) and len(unscored) == len(cases),
        label=text_typed(typed, f"{info.name}.{LABEL}", metric_label(info.name)) if metric_label(info.name) else None,
    )


def _function_field(typed: Typed, name: str, is_checked: bool, offer: Offer) -> MetricField:
    is_known = name in offer.functions
    return MetricField(
        name=name,
        title=name,
        summary="A function named under metrics in evaldesk.toml." if is_known else "No longer among the metrics here.",
        threshold=text_typed(typed, f"{name}.threshold", "1"),
        is_higher_better=True,
        is_checked=is_checked,
        options=(),
        rare=(),
        met="",
        unscored="",
        is_unavailable=not is_known,
    )


def _unscored(typed: Typed, name: str, is_checked: bool, cases: Sequence[Case]) -> dict[str, str]:
    """Case id -> why the metric will not judge it; by its options as far as they can be read."""
    criterion = Criterion(name)
    if is_checked:
        try:
            criterion = Criterion(name, None, typed_criterion(typed, name).options)
            return unscored_reasons(criterion, cases)
        except EvaldeskError:
            criterion = Criterion(name)
    needs_options = bool(metric_info(name).required)
    return {} if needs_options else unscored_reasons(criterion, cases)


def _option_field(typed: Typed, metric: MetricInfo, info: OptionInfo, offer: Offer) -> OptionField:
    place = f"{metric.name}.{info.name}"
    text, keys = write_option(info, info.default)
    if info.kind == "switch" and FILLED in typed:
        text = ""  # a box that is not ticked sends nothing
    choices = info.choices
    if info.kind == "keys":
        choices = (*choices, (LISTED, "only these keys"))
    if info.kind == "model":
        first = f"the first allowed: {offer.judges[0]}" if offer.judges else "none is allowed yet"
        choices = (("", first), *((judge, judge) for judge in offer.judges))
    return OptionField(
        field=place,
        label=info.label,
        explanation=info.explanation,
        shape=_shape(info, bool(choices)),
        value=text_typed(typed, place, text),
        choices=choices,
        keys=text_typed(typed, f"{place}.keys", keys) if info.kind == "keys" else None,
        step="1" if info.kind == "whole" else "any",
        low="" if info.low is None else f"{info.low:g}",
        high="" if info.high is None else f"{info.high:g}",
        example=info.example,
        is_required=info.name in metric.required,
    )


def _other_field(typed: Typed, metric: str) -> tuple[OptionField, ...]:
    """What an earlier run asked for beyond the fields of the form."""
    text = text_typed(typed, f"{metric}.{OTHER}", "")
    told = "Options without a field of their own, as a criteria file has them; a JSON object."
    return (OptionField(f"{metric}.{OTHER}", "Other options", told, "area", text),) if text else ()


def _shape(info: OptionInfo, has_choices: bool) -> str:
    if info.kind == "switch":
        return "switch"
    if has_choices:
        return "select"
    if info.kind in ("number", "whole"):
        return "number"
    return "area" if info.kind in AREAS else "text"
