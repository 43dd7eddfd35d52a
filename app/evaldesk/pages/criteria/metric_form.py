"""Metrics on a form: grouped by their need, with their options as fields; and the reading of the posted form.

The options of a metric come when it is ticked: 42 metrics at once are 109 kB (decision 039).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evaldesk.errors import EvaldeskError
from evaldesk.metrics import (
    METRICS,
    MetricInfo,
    OptionInfo,
    is_function,
    is_metric,
    metric_info,
    metric_kind,
    metric_label,
    metric_options,
    missing_reasons,
)
from evaldesk.model import Case, Criterion
from evaldesk.pages.criteria.form import (
    LABEL,
    OTHER,
    Typed,
    is_strict,
    text_typed,
    threshold_text,
    ticked_metrics,
    typed_criterion,
    was_shown,
)
from evaldesk.pages.criteria.option_text import LISTED, write_option
from evaldesk.wording.words import counted_words

MAX_NAMED = 5
AREAS = frozenset({"long_text", "json", "list", "modes", "values", "patterns", "tolerances"})
RARE = frozenset({"modes", "values", "patterns", "tolerances"})
NEEDS = ("tool_calls", "reference", "intermediate", "final_state", "nothing", "functions", "judge", "effort")
"""What metrics judge, in the order in which they are listed."""
SERVES: Mapping[str, str] = {
    "all": "Your cases can serve these",
    "some": "Some cases can",
    "none": "Cannot run here",
}
NO_JUDGE = "No model may judge yet: name one under judges in evaldesk.toml."
_MET: Mapping[str, tuple[str, str, str]] = {
    "tool_calls": ("has", "have", "expected calls"),
    "reference": ("has", "have", "a reference"),
    "reference_json": ("has", "have", "a reference in JSON"),
    "reference_number": ("has", "have", "a number in the reference"),
    "intermediate": ("has", "have", "expected intermediate responses"),
    "final_state": ("has", "have", "an expected final state"),
}


def own_functions(criteria: Iterable[Criterion]) -> set[str]:
    """The names of those criteria that are functions of the user."""
    return {each.metric for each in criteria if is_function(each)}


@dataclass(frozen=True, slots=True)
class Offer:
    """The additions of the settings to the metrics of the table: models that may judge, functions by their names."""

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
    """A metric on the form; `rare` are options behind a disclosure, `unjudged` lists cases that it will not judge.

    `label` is the one in its name, as it was typed; None for the metric itself, of which there can be more.
    `was_shown` says that the form had its threshold and options before, as it has once the metric is ticked.
    `n_served` of `n_cases` give it something to judge; `lacks` names a requirement that is missing here.
    """

    name: str
    title: str
    summary: str
    threshold: str
    is_higher_better: bool
    is_checked: bool
    options: tuple[OptionField, ...]
    rare: tuple[OptionField, ...]
    coverage: str
    unjudged: str
    is_unavailable: bool
    label: str | None = None
    was_shown: bool = False
    n_served: int = 0
    n_cases: int = 0
    lacks: str = ""

    @property
    def serves(self) -> Literal["all", "some", "none"]:
        """Whether it can judge the cases here."""
        if self.lacks or self.is_unavailable:
            return "none"
        return "all" if self.n_served >= self.n_cases else "some"

    @property
    def is_shown(self) -> bool:
        """Whether the form has its threshold and options."""
        return self.is_checked or self.was_shown

    def has_problem(self, problems: Mapping[str, str]) -> bool:
        """Whether one of its options is wrong."""
        return any(problem and name.startswith(f"{self.name}.") for name, problem in problems.items())

    def has_rare(self, problems: Mapping[str, str]) -> bool:
        """Whether the options behind the disclosure say anything, or are wrong."""
        return any(option.value or problems.get(option.field) for option in self.rare)


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics that can be added, which serve the cases alike."""

    title: str
    metrics: tuple[MetricField, ...]


@dataclass(frozen=True, slots=True)
class MetricForm:
    """The metrics of a form: ticked ones with their options, and further ones that can be added.

    The further ones are `listed` once their list was opened; `open` where the page itself opens it.
    """

    chosen_fields: tuple[MetricField, ...] = ()
    offered: tuple[MetricGroup, ...] = ()
    list_state: str = ""

    @property
    def n_offered(self) -> int:
        """The number of metrics that can be added."""
        return sum(len(group.metrics) for group in self.offered)


def metric_form(form: Typed, cases: Sequence[Case], offer: Offer | None = None) -> MetricForm:
    """Every metric, with the cases of `cases` that it cannot judge; metrics for all cases come first.

    A ticked metric that is not offered (any more) stands among the chosen ones, so that it is not lost in silence.
    """
    fields = _metric_fields(form, cases, offer or Offer())
    hidden_fields = [each for each in fields if not each.is_shown]
    groups = (
        (title, tuple(each for each in hidden_fields if each.serves == serves)) for serves, title in SERVES.items()
    )
    return MetricForm(
        tuple(each for each in fields if each.is_shown),
        tuple(MetricGroup(title, metrics) for title, metrics in groups if metrics),
        text_typed(form, "list", ""),
    )


def _metric_fields(form: Typed, cases: Sequence[Case], offer: Offer) -> list[MetricField]:
    """All metrics, those with the same need together."""
    ticked = dict.fromkeys(ticked_metrics(form, cases))
    has_strict = is_strict(form)
    by_need: dict[str, list[MetricField]] = {name: [] for name in NEEDS}
    for name in _metric_names(ticked):
        info = metric_info(name)
        by_need[_need(info)].append(_metric_field(form, info, name in ticked, cases, offer, has_strict))
    for name in dict.fromkeys([*offer.functions, *(name for name in ticked if not is_metric(name))]):
        by_need["functions"].append(_function_field(form, name, name in ticked, offer, len(cases)))
    return [each for fields in by_need.values() for each in fields]


def unjudged_words(reasons: Mapping[str, str], n_cases: int, *, is_strict: bool) -> str:
    """Which cases a metric will not judge, and why."""
    if not reasons:
        return ""
    reason = next(iter(reasons.values()))
    so = "would be unscored and could not pass" if is_strict else "not applicable"
    if len(reasons) == n_cases:
        return f"{'Every case would be unscored' if is_strict else 'Not applicable to any case'}. {reason}"
    case_names = ", ".join(list(reasons)[:MAX_NAMED]) + (" and more" if len(reasons) > MAX_NAMED else "")
    return f"{counted_words(len(reasons), n_cases, 'case')} {so}: {case_names}. {reason}"


def _metric_names(ticked: Iterable[str]) -> Iterator[str]:
    """Every metric, those with a label behind the metric itself."""
    more = [name for name in ticked if is_metric(name) and name not in METRICS]
    for kind in METRICS:
        yield kind
        yield from (name for name in more if metric_kind(name) == kind)


def _need(info: MetricInfo) -> str:
    if info.has_judge:
        return "judge"
    if info.needs == "nothing" and info.default_threshold is None:
        return "effort"
    return info.needs.partition("_json")[0].partition("_number")[0]


def _met_words(n: int, n_all: int, need: str) -> str:
    one, many, what = _MET[need]
    return f"{counted_words(n, n_all, 'case')} {one if n == 1 else many} {what}"


def _metric_field(
    form: Typed, info: MetricInfo, is_checked: bool, cases: Sequence[Case], offer: Offer, is_strict: bool
) -> MetricField:
    reasons = _missing_reasons(form, info.name, is_checked, cases)
    fields = [(each.kind, _option_field(form, info, each, offer)) for each in metric_options(info.name)]
    usual_range = (info.low, info.high) == (0.0, 1.0) or math.isinf(info.high)
    return MetricField(
        name=info.name,
        title=info.title,
        summary=info.summary if usual_range else f"{info.summary} Scores {info.low:g} to {info.high:g}.",
        threshold=threshold_text(form, info.name),
        is_higher_better=info.is_higher_better,
        is_checked=is_checked,
        options=tuple([field for kind, field in fields if kind not in RARE]),
        rare=(*(field for kind, field in fields if kind in RARE), *_other_field(form, info.name)),
        coverage=_met_words(len(cases) - len(reasons), len(cases), info.needs) if info.needs in _MET and cases else "",
        unjudged=unjudged_words(reasons, len(cases), is_strict=is_strict),
        is_unavailable=bool(cases) and len(reasons) == len(cases),
        label=text_typed(form, f"{info.name}.{LABEL}", metric_label(info.name)) if metric_label(info.name) else None,
        was_shown=was_shown(form, info.name),
        n_served=len(cases) - len(reasons),
        n_cases=len(cases),
        lacks=NO_JUDGE if info.has_judge and not offer.judges else "",
    )


def _function_field(form: Typed, name: str, is_checked: bool, offer: Offer, n_cases: int) -> MetricField:
    is_known = name in offer.functions
    return MetricField(
        name=name,
        title=name,
        summary="A function named under metrics in evaldesk.toml." if is_known else "No longer among the metrics here.",
        threshold=threshold_text(form, name),
        is_higher_better=True,
        is_checked=is_checked,
        options=(),
        rare=(),
        coverage="",
        unjudged="",
        is_unavailable=not is_known,
        was_shown=was_shown(form, name),
        n_served=n_cases,
        n_cases=n_cases,
    )


def _missing_reasons(form: Typed, name: str, is_checked: bool, cases: Sequence[Case]) -> Mapping[str, str]:
    """Case id -> the missing assertion for the metric; by its options as far as they can be read."""
    criterion = Criterion(name)
    if is_checked:
        try:
            criterion = Criterion(name, None, typed_criterion(form, name).options)
            return missing_reasons(criterion, cases)
        except EvaldeskError:
            criterion = Criterion(name)
    return missing_reasons(criterion, cases)


def _option_field(form: Typed, metric: MetricInfo, info: OptionInfo, offer: Offer) -> OptionField:
    place = f"{metric.name}.{info.name}"
    text, keys = write_option(info, info.default)
    if info.kind == "switch" and was_shown(form, metric.name):
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
        value=text_typed(form, place, text),
        choices=choices,
        keys=text_typed(form, f"{place}.keys", keys) if info.kind == "keys" else None,
        step="1" if info.kind == "whole" else "any",
        low="" if info.low is None else f"{info.low:g}",
        high="" if info.high is None else f"{info.high:g}",
        example=info.example,
        is_required=info.name in metric.required,
    )


def _other_field(form: Typed, metric: str) -> tuple[OptionField, ...]:
    """The settings of an earlier run beyond the fields of the form."""
    text = text_typed(form, f"{metric}.{OTHER}", "")
    hint = "Options without a field of their own, as a criteria file has them; a JSON object."
    return (OptionField(f"{metric}.{OTHER}", "Other options", hint, "area", text),) if text else ()


def _shape(info: OptionInfo, has_choices: bool) -> str:
    if info.kind == "switch":
        return "switch"
    if has_choices:
        return "select"
    if info.kind in ("number", "whole"):
        return "number"
    return "area" if info.kind in AREAS else "text"
