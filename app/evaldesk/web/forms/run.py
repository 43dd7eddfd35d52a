"""The form of a new run: the typed values, their meaning, and the notes beside each field."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

from evaldesk.desk.criteria.criteria import criteria_of_set, given_criteria, given_live, reaches_out
from evaldesk.desk.evalsets.cases import CaseIds
from evaldesk.desk.failures import MAX_MODE_NAME
from evaldesk.desk.runs.estimate import Estimate
from evaldesk.desk.runs.plan import RunOptions, Unjudged, foresee, usual_values
from evaldesk.errors import UsageError
from evaldesk.model import Case, Criterion, EvalSet, RunConfig, default_criteria
from evaldesk.model.evalset import NO_TAGS
from evaldesk.model.run import option_value
from evaldesk.model.stored import Preset, RunSummary
from evaldesk.model.visibility import Visibility
from evaldesk.pages.criteria.form import (
    FILLED,
    Typed,
    is_fresh,
    is_strict,
    read_criteria,
    text_typed,
    ticked_metrics,
    typed_criterion,
    write_criteria,
)
from evaldesk.pages.criteria.labels import check_labels, labelled
from evaldesk.pages.criteria.metric_form import MAX_NAMED, MetricForm
from evaldesk.pages.criteria.option_text import number_text
from evaldesk.pages.runs.facts import shown_values
from evaldesk.paths import OURS
from evaldesk.run_options import BY_NAME, OWN, RUN_OPTIONS, Asked, RunOption, has_door, offered
from evaldesk.settings import Settings
from evaldesk.web.forms.fields import read_form
from evaldesk.web.forms.gates import GateForm, read_gates, typed_gates
from evaldesk.web.forms.variants import DROP_VALUE, DROP_VARY, PLAYED, SEE, SHOWN, VariantForm
from evaldesk.wording.words import counted_words, short_title

MAX_LISTED = 500
LIKE = "like"
PRESET, PRESET_NAME = "preset", "preset-name"
MAX_PRESET = 64_000
"""Characters of all fields of a preset."""
QUARANTINE_TICK, IN_NO_GATE = "quarantine", "in_no_gate"
"""The field that says that the form has a tick for cases in quarantine, and the tick."""
NOT_OF_PRESET = frozenset(
    {
        *("agent", "evalset", "case", "cases", "note", "baseline"),
        *("another", "check", "enter", "list", "try", LIKE, PRESET, PRESET_NAME),
        *(DROP_VARY, DROP_VALUE, SHOWN, PLAYED, SEE, QUARANTINE_TICK, IN_NO_GATE),
    }
)
"""Fields that say what is run, or belong to one run."""
NOT_AGAIN: Mapping[str, str] = {"note": "it describes the new run"}
"""Options that a run again does not have of the earlier run, and why."""
_PLAIN_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*", re.ASCII)


FORM_DEFAULTS: Mapping[str, str] = {"n": "5"}
"""Where the form begins with another value than the other doors: a rate of one trial says little."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option of the table as a field of the form; `open` is the meaning of an empty field.

    `names` are the names in the settings, to choose from.
    """

    option: RunOption
    value: str
    open: str
    names: Sequence[str] = ()

    @property
    def label(self) -> str:
        """The name of the field."""
        return f"{self.option.title}, seconds" if self.option.unit == "s" else self.option.title

    @property
    def is_required(self) -> bool:
        """Whether the field cannot be left empty."""
        return self.option.form == "first" and self.option.kind in ("whole", "number")

    @property
    def is_offered(self) -> bool:
        """Whether there is something to choose."""
        return self.option.name not in _CHOICES or bool(self.names)

    @property
    def choices(self) -> Sequence[str]:
        """The values to choose from; empty where it is typed."""
        return self.names or (self.option.choices if self.option.kind == "choice" else ())

    @property
    def low(self) -> str:
        """The least number; empty where every number is right."""
        return number_text(self.option.low) if abs(self.option.low) < 2**53 else ""

    @property
    def high(self) -> str:
        """The greatest number."""
        return number_text(self.option.high) if abs(self.option.high) < 2**53 else ""


_CHOICES: Mapping[str, Callable[[Settings], Iterable[str]]] = {
    "on": lambda settings: settings.executors,
    "environment": lambda settings: (*settings.environments, OURS) if settings.environments else (),
}
"""Options whose values are names of the settings."""
_LIMIT_WORDS: Mapping[str, str] = {"concurrency": "at once", "timeout_s": "s"}
"""The limits that the line of their fold tells, and the words behind their numbers."""
_BOUNDS = frozenset({"concurrency", "memory_mib", "processes"})
_TIMEOUTS = BY_NAME["timeout_s"].section


async def read_form_values(request: Request) -> Typed:
    """The posted form, each metric under the label that was typed for it."""
    return labelled(ImmutableMultiDict((await read_form(request)).multi_items()))


def preset_name(text: str) -> str:
    """The name of a preset as it is kept. Raises UsageError."""
    name = " ".join(text.split())
    if not name or len(name) > MAX_MODE_NAME or not name.isprintable():
        raise UsageError(f"Name the preset in at most {MAX_MODE_NAME} letters.", field=PRESET_NAME)
    return name


def preset_fields(form_values: Typed) -> list[tuple[str, str]]:
    """The fields of a form for a preset: options, criteria and gates, without agent and cases. Raises UsageError."""
    preset_values = [
        (name, text) for name, text in form_values.multi_items() if name not in NOT_OF_PRESET and isinstance(text, str)
    ]
    if sum(len(name) + len(text) for name, text in preset_values) > MAX_PRESET:
        raise UsageError(f"The form has more than the {MAX_PRESET:,} characters of a preset.", field=PRESET_NAME)
    return preset_values


def filled_by(preset: Preset, form_values: Typed) -> Typed:
    """The form as a preset fills it, for the agent and the cases that an address names, else for its own agent."""
    what = [(name, text) for name, text in form_values.multi_items() if name in ("agent", "evalset", "case", "cases")]
    if not any(name == "agent" and text for name, text in what):
        what.append(("agent", preset.agent_id))
    return labelled(ImmutableMultiDict([*what, *preset.fields, (PRESET, str(preset.id))]))


def is_limit(option: RunOption) -> bool:
    """Whether the option bounds a trial, or the number of trials at once."""
    return option.name in _BOUNDS or (bool(option.form) and option.section == _TIMEOUTS)


@dataclass(frozen=True, slots=True)
class Fold:
    """Options behind a disclosure; `words` are its line."""

    title: str
    words: str
    fields: Sequence[OptionField]
    is_open: bool


@dataclass(frozen=True, slots=True)
class KeptOptions:
    """The settings of a run like run `run_id` that no form offers."""

    run_id: int
    words: str


@dataclass(frozen=True, slots=True)
class RunForm:
    """All that the template shows."""

    agents: Sequence[tuple[str, str]]
    evalsets: Sequence[tuple[str, str]]
    agent: str
    evalset: str
    own_model: str
    models: Sequence[str]
    fields: Mapping[str, OptionField]
    is_selection: bool
    choices: Sequence[tuple[str, bool]]
    n_all: int
    n_selected: int
    metrics: MetricForm = field(default_factory=MetricForm)
    criteria_file: str = ""
    """The name of the criteria file beside the eval set."""
    is_beside: bool = False
    """Whether that file has just filled the form."""
    unscored: Sequence[str] = ()
    not_applicable: Sequence[str] = ()
    estimate: Estimate | None = None
    spread: str = ""
    is_reading: bool = False
    """Whether the eval set is being read, so that its cases are not known yet."""
    kept_options: KeptOptions | None = None
    problems: Mapping[str, str] = field(default_factory=lambda: defaultdict(str))
    problem: str = ""
    is_checked: bool = False
    gates: GateForm = field(default_factory=lambda: GateForm({}))
    presets: Sequence[tuple[int, str]] = ()
    preset: int | None = None
    is_preset_refused: bool = False
    variants: VariantForm | None = None

    @property
    def n_trials(self) -> int:
        """The trials of the run, or of all variants; 0 where these cannot be played."""
        if self.variants and self.variants.problem:
            return 0
        if self.variants and self.variants.estimate:
            return self.variants.estimate.n_trials
        return self.estimate.n_trials if self.estimate else 0

    @property
    def preset_title(self) -> str:
        """The name of the preset that filled the form; empty without one."""
        return dict(self.presets).get(self.preset or 0, "")

    @property
    def folds(self) -> Sequence[Fold]:
        """The options that stand folded up: the limits of a trial, and all others of the table."""
        limits = [each for each in self.fields.values() if is_limit(each.option)]
        others = [
            each
            for each in self.fields.values()
            if each.option.form == "more" and each.is_offered and each not in limits
        ]
        n_set = sum(bool(each.value) for each in others)
        limit_words = [
            f"{each.value} {_LIMIT_WORDS[each.option.name]}" for each in limits if each.option.name in _LIMIT_WORDS
        ]
        return (
            Fold("Limits", ", ".join(limit_words), limits, self._has_problem(limits)),
            Fold("Options", f"{n_set} set" if n_set else "all at their defaults", others, self._has_problem(others)),
        )

    def _has_problem(self, fields: Sequence[OptionField]) -> bool:
        return any(self.problems.get(each.option.name) for each in fields)

    @property
    def fault(self) -> str:
        """The field that the problem is about, for a link to it; empty where it has no plain name."""
        return next(
            (
                name
                for name, problem in self.problems.items()
                if self.problem and problem and _PLAIN_NAME.fullmatch(name)
            ),
            "",
        )


def option_fields(form_values: Typed, settings: Settings, like: RunConfig | None) -> dict[str, OptionField]:
    """The options of the table that the form offers, as they were typed, or as the settings have them."""
    default_values = usual_values(settings, like)
    fields_by_name = {}
    for option in offered("form"):
        value = default_values[option.name]
        is_first = option.form == "first"
        start = FORM_DEFAULTS.get(option.name, _typed_text(option, value) if is_first else "")
        text = text_typed(form_values, option.name, start)
        choices_of = _CHOICES.get(option.name)
        names = tuple(dict.fromkeys((*choices_of(settings), *filter(None, (text,))))) if choices_of else ()
        fields_by_name[option.name] = OptionField(option, text, option.value_words(value), names)
    return fields_by_name


def _typed_text(option: RunOption, value: Any) -> str:
    """The value as it stands in its field."""
    if value is None or value is False:
        return ""
    if value is True:
        return "1"
    if option.kind == "shares":
        return option.value_words(value)
    return number_text(value) if option.kind == "number" else str(value)


def read_options(form_values: Typed, like: RunConfig | None = None) -> RunOptions:
    """The options that were typed. Raises UsageError naming the first field that cannot be read."""
    check_labels(form_values)
    options = {
        option.name: option.read(text_typed(form_values, option.name, FORM_DEFAULTS.get(option.name, "")))
        for option in offered("form")
    }
    if QUARANTINE_TICK in form_values:
        options["without"] = typed_without(form_values, like)
    is_selection = text_typed(form_values, "cases", "all") == "selected"
    n, compat = options["n"] or BY_NAME["n"].default, options["compat"] or OWN
    return RunOptions(
        case_ids=tuple(str(case_id) for case_id in form_values.getlist("case")) if is_selection else None,
        criteria=read_criteria(form_values),
        like=like,
        gates=read_gates(form_values, n=n, compat=compat),
        **cast("Asked", options),
    )


def typed_without(form_values: Typed, like: RunConfig | None) -> str:
    """The tags of cases in no gate: those of the earlier run, else the usual ones; none with an unticked tick."""
    usual = like.without if like else BY_NAME["without"].default
    if QUARANTINE_TICK not in form_values:
        return usual
    if IN_NO_GATE not in form_values:
        return NO_TAGS
    return BY_NAME["without"].default if usual == NO_TAGS else usual


def models_of(models: Sequence[str], earlier: RunSummary | None) -> Sequence[str]:
    """The models that the form offers: those of the settings, and that of the earlier run, which a person named."""
    own = earlier.config.model if earlier else None
    return [*models, own] if own and own not in models else models


def kept_of(run: RunSummary) -> KeptOptions:
    """The options of a run that are not at their default and that no form offers."""
    options = [option for option in RUN_OPTIONS if not has_door(option, "form")]
    values = shown_values(run.config, options)
    other_options = [each for each in options if values.get(each.name, each.default) != each.default]
    lines = [f"{each.title}: {each.value_words(values[each.name])}" for each in other_options]
    return KeptOptions(run.id, "; ".join(lines))


def chosen_of(form_values: Typed, evalset: EvalSet | None) -> tuple[bool, set[str]]:
    """Whether only some cases are to run, and which are ticked; a link that names cases means these."""
    ids = CaseIds(evalset.cases if evalset else ())
    ticked = {str(case_id) for case_id in form_values.getlist("case") if str(case_id) in ids}
    kind = text_typed(form_values, "cases", "selected" if ticked else "all")
    return kind == "selected", ticked


def judged_lines(
    form_values: Typed, cases: Sequence[Case], visibility: Visibility | None = None
) -> tuple[list[str], list[str]]:
    """The unscored cases, and those where a metric does not apply: `Final state: asserted in 2 of 7 cases …`.

    A metric that needs what the `visibility` of the agent does not show is among the first; so is one whose options
    cannot be read, as it cannot be checked yet.
    """
    unread, criteria = [], []
    if is_fresh(form_values):
        criteria = [*default_criteria(cases)]
    for name in () if criteria else ticked_metrics(form_values):
        try:
            criterion = typed_criterion(form_values, name)
            foresee(cases, [criterion])
        except UsageError as error:
            unread.append(f"{short_title(name)} cannot be checked yet: {error}.")
            continue
        criteria.append(criterion)
    gaps = foresee(cases, criteria, strict=is_strict(form_values), visibility=visibility)
    if unread:
        gaps = replace(gaps, unscored=tuple(each for each in gaps.unscored if each.metric))
    unscored = [_unscored_line(each, criteria, len(cases)) for each in gaps.unscored]
    return [*unread, *unscored], [_applies_line(each, len(cases)) for each in gaps.not_applicable]


def _unscored_line(gap: Unjudged, criteria: Sequence[Criterion], n_cases: int) -> str:
    deciding = {each.metric for each in criteria if each.threshold is not None}
    so = " and cannot pass" if not gap.metric or gap.metric in deciding else ""
    by = f" by {short_title(gap.metric)}" if gap.metric else ""
    cases = counted_words(len(gap.case_ids), n_cases, "case")
    return f"{cases} will be unscored{by}{so}{_which(gap, n_cases)}: {gap.reason}"


def _applies_line(gap: Unjudged, n_cases: int) -> str:
    asserted = counted_words(n_cases - len(gap.case_ids), n_cases, "case")
    return f"{short_title(gap.metric)}: asserted in {asserted}, not applicable elsewhere{_which(gap, n_cases)}."


def _which(gap: Unjudged, n_cases: int) -> str:
    """The first few cases by their ids; nothing where it is all of them."""
    more = " and more" if gap.case_ids[MAX_NAMED:] else ""
    return "" if len(gap.case_ids) == n_cases else f" ({', '.join(gap.case_ids[:MAX_NAMED])}{more})"


def as_beside(form_values: Typed, criteria_path: Path | None, evalset: EvalSet | None = None) -> Typed:
    """The form with the criteria of the set, else of the file beside it, where none were chosen yet.

    `live_model_config` of the file counts in either case. Raises FormatError, UsageError; also for code and addresses,
    which no form may name.
    """
    if not is_fresh(form_values):
        return form_values
    live = given_live(criteria_path) if criteria_path else {}
    typed_live = [(name, _typed_text(BY_NAME[name], value)) for name, value in live.items()]
    pairs = [*form_values.multi_items(), *typed_live]
    if evalset is not None and (set_criteria := criteria_of_set(evalset)):
        return ImmutableMultiDict([*pairs, *write_criteria(set_criteria)])
    if criteria_path is None:
        return form_values
    criteria = given_criteria(criteria_path)
    if reaches_out(criteria, None):
        raise UsageError(f"{criteria_path.name} names a function or an address; `evaldesk eval` takes it")
    return ImmutableMultiDict([*pairs, *write_criteria(criteria)])


def like_run(summary: RunSummary, case_ids: Iterable[str] = ()) -> Typed:
    """The form as it was filled for an earlier run; without `case_ids`, with all cases that the eval set has now."""
    config = summary.config
    pairs: list[tuple[str, object]] = [
        (FILLED, "1"),
        ("agent", config.agent.id),
        ("evalset", config.evalset_id),
        (LIKE, str(summary.id)),
    ]
    again = [option for option in offered("form") if option.name not in NOT_AGAIN]
    pairs += [(option.name, _typed_text(option, option_value(config, option))) for option in again]
    pairs += typed_gates(config.gates)
    pairs += [("case", case_id) for case_id in case_ids]
    pairs += write_criteria(config.criteria)
    return ImmutableMultiDict(pairs)
