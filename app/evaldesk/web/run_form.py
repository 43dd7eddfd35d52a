"""The form of a new run: what was typed, what it means, and what is said beside each field."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from starlette.datastructures import ImmutableMultiDict

from evaldesk.desk.run_estimate import Estimate
from evaldesk.desk.run_plan import MAX_CONCURRENCY, MAX_N, RunOptions
from evaldesk.errors import UsageError
from evaldesk.metrics import METRICS, metric_info, unscored_reason
from evaldesk.model import DEFAULT_CRITERIA, Case, Criterion, EvalSet, JsonValue
from evaldesk.store import RunSummary

Typed = ImmutableMultiDict[str, object]

MAX_LISTED = 500
FILLED = "filled"
MAX_NAMED = 5
CHOICES: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "match_type": ("order", (("EXACT", "exact"), ("IN_ORDER", "in order"), ("ANY_ORDER", "any order"))),
    "args": (
        "arguments",
        (("exact", "the same"), ("ignore", "any"), ("superset", "more allowed"), ("subset", "fewer allowed")),
    ),
}
SWITCHES: Mapping[str, str] = {"ignore_args": "any arguments", "ignore_case": "any case"}
NUMBERS: Mapping[str, tuple[str, str]] = {"tolerance": ("tolerance", "0")}
NEEDS: Mapping[str, tuple[str, str]] = {
    "tool_calls": ("Needs expected calls", "say which tools to call"),
    "reference": ("Needs a reference answer", "have a reference"),
    "reference_json": ("Needs a reference answer in JSON", "have a reference in JSON"),
    "reference_number": ("Needs a number in the reference answer", "have a number in the reference"),
    "final_state": ("Needs a final state", "say what the final state should be"),
    "nothing": ("Needs nothing", ""),
}


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option of a metric: a choice when it has `choices`, else a switch or a number; `default` is the number's."""

    field: str
    label: str
    value: str
    choices: tuple[tuple[str, str], ...] = ()
    is_switch: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True)
class MetricField:
    """A metric on the form."""

    name: str
    title: str
    summary: str
    threshold: str
    is_higher_better: bool
    is_checked: bool
    options: tuple[OptionField, ...]
    unscored: str
    is_unavailable: bool


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics with the same need; `tag` says how many cases meet it."""

    title: str
    tag: str
    metrics: tuple[MetricField, ...]


@dataclass(frozen=True, slots=True)
class RunForm:
    """All that the template shows."""

    agents: Sequence[tuple[str, str]]
    evalsets: Sequence[tuple[str, str]]
    agent: str
    evalset: str
    own_model: str
    models: Sequence[str]
    values: Mapping[str, str]
    is_selection: bool
    choices: Sequence[tuple[str, bool]]
    n_all: int
    n_selected: int
    groups: Sequence[MetricGroup] = ()
    estimate: Estimate | None = None
    problems: Mapping[str, str] = field(default_factory=lambda: defaultdict(str))
    problem: str = ""
    max_n: int = MAX_N
    max_concurrency: int = MAX_CONCURRENCY


DEFAULTS: Mapping[str, str] = {
    "n": "5",
    "concurrency": "4",
    "timeout_s": "120",
    "pass_threshold": "1",
    "model": "",
    "note": "",
    "errors_are_failures": "",
}


def typed_values(typed: Typed) -> dict[str, str]:
    """What was typed into the plain fields, or their defaults."""
    return {name: _text(typed, name, default) for name, default in DEFAULTS.items()}


def read_options(typed: Typed) -> RunOptions:
    """The options that were typed. Raises UsageError naming the first field that cannot be read."""
    values = typed_values(typed)
    is_selection = _text(typed, "cases", "all") == "selected"
    return RunOptions(
        case_ids=tuple(str(case_id) for case_id in typed.getlist("case")) if is_selection else None,
        n=_whole(values, "n", "trials of each case"),
        criteria=read_criteria(typed),
        pass_threshold=_number(values["pass_threshold"], "pass_threshold"),
        concurrency=_whole(values, "concurrency", "trials at once"),
        timeout_s=_number(values["timeout_s"], "timeout_s"),
        model=values["model"] or None,
        note=values["note"],
        errors_are_failures=bool(values["errors_are_failures"]),
    )


def read_criteria(typed: Typed) -> tuple[Criterion, ...]:
    """The ticked metrics with thresholds and options; ADK's two defaults for a form that was not filled yet."""
    if not typed.getlist("metric") and FILLED not in typed:
        return DEFAULT_CRITERIA
    return tuple(_criterion(typed, str(name)) for name in typed.getlist("metric"))


def metric_groups(typed: Typed, cases: Sequence[Case]) -> tuple[MetricGroup, ...]:
    """Every metric of the table under what it needs, with what it will not be able to judge in `cases`."""
    chosen = {criterion.metric for criterion in _readable_criteria(typed)}
    found: dict[str, list[MetricField]] = {need: [] for need in NEEDS}
    n_met: dict[str, int] = {}
    for name in METRICS:
        info = metric_info(name)
        reasons = {case.id: unscored_reason(Criterion(name), case) for case in cases}
        unscored = {case_id: reason for case_id, reason in reasons.items() if reason}
        n_met[info.needs] = len(cases) - len(unscored)
        found.setdefault(info.needs, []).append(_metric_field(typed, name, name in chosen, unscored, len(cases)))
    return tuple(
        MetricGroup(NEEDS[need][0], _tag(need, n_met.get(need, 0), len(cases)), tuple(metrics))
        for need, metrics in found.items()
        if metrics
    )


def chosen_of(typed: Typed, evalset: EvalSet | None) -> tuple[bool, set[str]]:
    """Whether only some cases are to run, and which are ticked; a link that names cases means these."""
    ids = {case.id for case in evalset.cases} if evalset else set()
    ticked = {str(case_id) for case_id in typed.getlist("case")} & ids
    kind = _text(typed, "cases", "selected" if ticked else "all")
    return kind == "selected", ticked


def like_run(summary: RunSummary, case_ids: Iterable[str] = ()) -> Typed:
    """The form as it was filled for an earlier run; without `case_ids`, with all cases that the eval set has now."""
    config = summary.config
    typed: list[tuple[str, object]] = [
        (FILLED, "1"),
        ("agent", config.agent.id),
        ("evalset", config.evalset_id),
        ("n", str(config.n)),
        ("concurrency", str(config.concurrency)),
        ("timeout_s", f"{config.limits.trial_timeout_s:g}"),
        ("pass_threshold", f"{config.pass_threshold:g}"),
        ("model", config.model or ""),
        ("errors_are_failures", "1" if config.errors_are_failures else ""),
    ]
    typed += [("case", case_id) for case_id in case_ids]
    for each in config.criteria:
        typed.append(("metric", each.metric))
        typed.append((f"{each.metric}.threshold", "" if each.threshold is None else f"{each.threshold:g}"))
        for name, value in each.options.items():
            typed.append((f"{each.metric}.{name}", "1" if value is True else str(value)))
    return ImmutableMultiDict(typed)


def _metric_field(typed: Typed, name: str, is_checked: bool, unscored: Mapping[str, str], n_cases: int) -> MetricField:
    info = metric_info(name)
    default = next((c.threshold for c in DEFAULT_CRITERIA if c.metric == name), info.default_threshold)
    return MetricField(
        name=name,
        title=info.title,
        summary=info.summary,
        threshold=_text(typed, f"{name}.threshold", "" if default is None else f"{default:g}"),
        is_higher_better=info.is_higher_better,
        is_checked=is_checked,
        options=tuple(_options(typed, name)),
        unscored=_unscored_words(unscored, n_cases),
        is_unavailable=bool(n_cases) and len(unscored) == n_cases,
    )


def _unscored_words(unscored: Mapping[str, str], n_cases: int) -> str:
    """Which cases a metric will not judge, and why."""
    if not unscored:
        return ""
    reason = next(iter(unscored.values()))
    if len(unscored) == n_cases:
        return f"Every case would be unscored. {reason}"
    named = ", ".join(list(unscored)[:MAX_NAMED]) + (" and more" if len(unscored) > MAX_NAMED else "")
    return f"{len(unscored)} of {n_cases} cases would be unscored and could not pass: {named}. {reason}"


def _options(typed: Typed, metric: str) -> list[OptionField]:
    found = []
    for option in fields(METRICS.load(metric)):  # type: ignore[arg-type]
        place = f"{metric}.{option.name}"
        if option.name in CHOICES:
            label, choices = CHOICES[option.name]
            found.append(OptionField(place, label, _text(typed, place, choices[0][0]), choices))
        elif option.name in SWITCHES:
            found.append(OptionField(place, SWITCHES[option.name], _text(typed, place, ""), is_switch=True))
        elif option.name in NUMBERS:
            label, default = NUMBERS[option.name]
            found.append(OptionField(place, label, _text(typed, place, default), default=default))
    return found


def _criterion(typed: Typed, name: str) -> Criterion:
    options: dict[str, JsonValue] = {}
    if name in METRICS:
        for option in _options(typed, name):
            key = option.field.partition(".")[2]
            if option.is_switch and option.value:
                options[key] = True
            elif option.choices and option.value != option.choices[0][0]:
                options[key] = option.value
            elif option.default and option.value.strip() not in ("", option.default):
                options[key] = _number(option.value, option.field)
    text = _text(typed, f"{name}.threshold", "").strip()
    threshold = _number(text, f"{name}.threshold") if text else None
    return Criterion(name, threshold, options)


def _readable_criteria(typed: Typed) -> tuple[Criterion, ...]:
    """Which metrics are ticked, also while a threshold cannot be read."""
    if not typed.getlist("metric") and FILLED not in typed:
        return DEFAULT_CRITERIA
    return tuple(Criterion(str(name)) for name in typed.getlist("metric"))


def _tag(need: str, n_met: int, n_cases: int) -> str:
    words = NEEDS[need][1]
    return f"{n_met} of {n_cases} cases {words}" if words and n_cases else ""


def _text(typed: Typed, name: str, default: str) -> str:
    value = typed.get(name, default)
    return value if isinstance(value, str) else default


def _whole(values: Mapping[str, str], name: str, words: str) -> int:
    text = values[name].strip()
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 9:
        raise UsageError(f"{words}: a whole number, not {text[:20]!r}", field=name)
    return int(text)


def _number(text: str, name: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise UsageError(f"a number such as 0.8, not {text[:20]!r}", field=name) from None
    if not math.isfinite(value):
        raise UsageError(f"a number such as 0.8, not {text[:20]!r}", field=name)
    return value
