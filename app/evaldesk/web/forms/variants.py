"""The variants in the form of a run: options with several values, the grid that they span, and its preview."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from pathlib import Path

from starlette.datastructures import ImmutableMultiDict

from evaldesk.desk.experiments.estimates import (
    ExperimentEstimate,
    PlannedVariant,
    VariantEstimate,
    experiment_estimate,
)
from evaldesk.desk.experiments.planning import names_of
from evaldesk.desk.experiments.prompts import prompt_files
from evaldesk.desk.experiments.variants import (
    AS_IT_IS,
    OF_EXPERIMENT,
    baseline_index,
    check_names,
    grid_of,
    levels_of,
    list_of,
    variant_options,
)
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import NAME_LIMIT, VALUE_LIMIT, EvaldeskError, UsageError
from evaldesk.model import Case
from evaldesk.model.evalset import count_trials
from evaldesk.model.experiment import Factor, Variant
from evaldesk.pages.criteria.form import Typed, text_typed
from evaldesk.pages.experiment_plan import (
    basis_of_plan,
    detectable_sentence,
    detectable_words,
    plan_sentence,
    proposal_sentence,
    variant_cost_words,
)
from evaldesk.pages.runs.table import LETTERS
from evaldesk.run_options import BY_NAME, RunOption, offered
from evaldesk.web.forms.fields import whole_or_one
from evaldesk.wording.words import cost_words

VARY, DROP_VARY, DROP_VALUE = "vary", "vary-drop", "value-drop"
SHOWN, PLAYED, BASELINE_VARIANT, DROPS_WORSE = "variant-shown", "variant", "baseline-variant", "drop-worse"
IS_LIST, ALLOWS_EQUAL = "variant-list", "allow-equal"
SEE = "see"
INSTRUCTION = "instruction"
FIRST = ("model", INSTRUCTION, "temperature")
"""The options that are offered first."""


@dataclass(frozen=True, slots=True)
class FormVariants:
    """The variants that a form asks for, after its ticks; `factors` only where the grid is full.

    `spans` are the options that vary with the names of their levels, `left_out` the names that were unticked. A list
    has the first level of every option in its first variant, and so on; a grid all combinations.
    """

    spans: Sequence[tuple[str, Sequence[str]]]
    factors: tuple[Factor, ...]
    variants: tuple[Variant, ...]
    left_out: frozenset[str]
    baseline: str | None
    drops_worse: bool
    allows_equal: bool = False
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class VariedField:
    """An option that varies: its typed values, the choices, and the words of its empty field."""

    option: RunOption
    values: Sequence[str]
    choices: Sequence[str]
    add: str

    @property
    def name(self) -> str:
        """The name of its fields."""
        return f"{VARY}.{self.option.name}"

    @property
    def is_text(self) -> bool:
        """Whether a value may have lines."""
        return self.option.name == INSTRUCTION


@dataclass(frozen=True, slots=True)
class GridCell:
    """One variant of the preview: its letter, and the cost of a trial, also as percent of the largest."""

    name: str
    letter: str
    is_played: bool
    cost: str
    why: str
    share: float | None


@dataclass(frozen=True, slots=True)
class VariantForm:
    """The part of the form with variants; `estimate` is None while they cannot be played, for the reason `problem`."""

    fields: Sequence[VariedField] = ()
    offered: Sequence[tuple[str, str]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[tuple[str, Sequence[GridCell]]] = ()
    corner: str = ""
    sizes: str = ""
    names: Sequence[str] = ()
    baseline: str = ""
    drops_worse: bool = False
    allows_equal: bool = False
    is_list: bool = False
    problem: str = ""
    estimate: ExperimentEstimate | None = None
    see: str = ""
    n_earlier: int = 0

    @property
    def plan(self) -> str:
        """The trials, the cost and the time in one sentence."""
        return f"{plan_sentence(self.estimate)}." if self.estimate else ""

    @property
    def visible(self) -> str:
        """The smallest difference that is found 4 times in 5."""
        return f"{detectable_sentence(self.estimate)}." if self.estimate else ""

    @property
    def basis(self) -> str:
        """The trials that this rests on."""
        return f"{basis_of_plan(self.estimate)}." if self.estimate else ""

    @property
    def shapes(self) -> Sequence[tuple[str, str, bool]]:
        """Other numbers of cases and trials, the difference that each shows, and whether it is the planned one."""
        if self.estimate is None:
            return ()
        n_cases, n = self.estimate.n_cases, self.estimate.n
        shapes = {(n_cases, 1), (n_cases, n), (n_cases, max(5, n)), (n_cases, max(10, n)), (max(30, 2 * n_cases), n)}
        return [
            (
                f"{cases:,} × {trials}",
                detectable_words(self.estimate.at(cases, trials)),
                (cases, trials) == (n_cases, n),
            )
            for cases, trials in sorted(shapes)
        ]

    @property
    def proposal(self) -> str:
        """The cases that a difference needs; empty where none was typed."""
        points = _points(self.see)
        if self.estimate is None or points is None:
            return ""
        return f"{proposal_sentence(self.estimate.proposal(points), self.estimate.n_cases)}."


def asks_for_variants(form_values: Typed) -> bool:
    """Whether the form has an option with values that vary."""
    return any(_values(form_values, name) for name in _names(form_values))


def changed_variants(form_values: Typed) -> Typed:
    """The form after a button of the variants: an option or a value is taken out."""
    dropped_option = text_typed(form_values, DROP_VARY, "")
    dropped_value, _, place = text_typed(form_values, DROP_VALUE, "").rpartition(":")
    if not dropped_option and not dropped_value:
        return form_values
    items, n_seen = [], 0
    for key, value in form_values.multi_items():
        if key in (DROP_VARY, DROP_VALUE) or (key == VARY and value == dropped_option):
            continue
        if dropped_option and key == f"{VARY}.{dropped_option}":
            continue
        if dropped_value and key == f"{VARY}.{dropped_value}":
            n_seen += 1
            if str(n_seen - 1) == place:
                continue
        items.append((key, value))
    return ImmutableMultiDict(items)


def read_variants(form_values: Typed, workspace: Path) -> FormVariants:
    """The variants that were typed, those unticked left out. Raises UsageError, NotFoundError for the baseline."""
    spans = []
    for name in _names(form_values):
        _check_offered(name)
        if values := _values(form_values, name):
            spans.append((name, levels_of(name, _named_values(name, values, workspace))))
    is_list = bool(form_values.get(IS_LIST))
    factors, variants = ((), list_of(spans)) if is_list else grid_of(spans)
    names, ticks = (frozenset(map(str, form_values.getlist(name))) for name in (SHOWN, PLAYED))
    left_out = frozenset(each.name for each in variants) & names - ticks
    chosen_variants = tuple(each for each in variants if each.name not in left_out)
    if left_out:
        factors, chosen_variants = (), tuple(replace(each, levels=()) for each in chosen_variants)
    baseline = text_typed(form_values, BASELINE_VARIANT, "") or None
    if baseline in left_out:
        baseline = None
    named_spans = [(name, [level.name for level in levels]) for name, levels in spans]
    return FormVariants(
        named_spans,
        factors,
        chosen_variants,
        left_out,
        baseline,
        drops_worse=bool(form_values.get(DROPS_WORSE)),
        allows_equal=bool(form_values.get(ALLOWS_EQUAL)),
        is_list=is_list,
    )


def _named_values(name: str, values: Sequence[str], workspace: Path) -> Sequence[str]:
    """The values with whole paths of files of prompts; no other file is read for a browser. Raises UsageError."""
    if name == INSTRUCTION:
        return names_of(values, workspace)
    file_value = next((value for value in values if value.startswith("@")), None)
    if file_value is not None:
        raise UsageError(
            f"{name} {file_value[:VALUE_LIMIT]}: only an instruction is the text of a file here", field=VARY
        )
    return values


def variant_form(
    form_values: Typed,
    choices: Mapping[str, Sequence[str]],
    workspace: Path,
    estimate: Callable[[FormVariants], ExperimentEstimate],
    earlier_names: Sequence[str] = (),
) -> VariantForm | None:
    """The part of the form with variants; None where nobody asked for it. `choices` are the values to choose from.

    `earlier_names` are those of an experiment to which the variants are added; they have the first letters.
    """
    if VARY not in form_values:
        return None
    options = [name for name in _names(form_values) if name in BY_NAME]
    form = VariantForm(
        fields=[_varied_field(name, _values(form_values, name), choices, workspace) for name in options],
        offered=_offered(options),
        drops_worse=bool(form_values.get(DROPS_WORSE)),
        allows_equal=bool(form_values.get(ALLOWS_EQUAL)),
        is_list=bool(form_values.get(IS_LIST)),
        see=text_typed(form_values, SEE, ""),
        n_earlier=len(earlier_names),
    )
    if not asks_for_variants(form_values):
        return form
    try:
        variants = read_variants(form_values, workspace)
    except EvaldeskError as error:
        return replace(form, problem=_sentence(error))
    names = [each.name for each in variants.variants]
    try:
        check_names([*earlier_names, *names])
        baseline, variant_estimate = names[baseline_index(names, variants.baseline)], estimate(variants)
    except EvaldeskError as error:
        return replace(_with_grid(form, variants, ()), problem=_sentence(error))
    form_with_grid = _with_grid(form, variants, variant_estimate.variants)
    return replace(form_with_grid, names=names, baseline=baseline, estimate=variant_estimate)


def estimate_variants(
    runs: StoredRuns,
    requested: FormVariants,
    agent_id: str,
    own_model: str | None,
    evalset_id: str,
    cases: Sequence[Case],
    texts: Mapping[str, str],
) -> ExperimentEstimate:
    """The estimate of the variants of a form, whose other options are `texts`; `own_model` is that of the agent.

    Raises UsageError.
    """
    planned_variants, n_each = [], []
    for variant in requested.variants:
        values = variant_options(RunOptions(), variant)
        model = values.overrides.get("model") or texts["model"]
        n = values.overrides.get("n") or whole_or_one(texts["n"])
        n_each.append(n)
        is_own = not model or model == own_model
        planned_variants.append(
            PlannedVariant(
                variant.name,
                agent_id,
                evalset_id,
                None if is_own else model,
                count_trials(cases, n),
                values.overrides.get("instruction"),
            )
        )
    return experiment_estimate(
        runs,
        planned_variants,
        cases,
        n=min(n_each),
        concurrency=whole_or_one(texts["concurrency"]),
        factors=requested.factors,
        baseline=baseline_index([each.name for each in requested.variants], requested.baseline),
    )


def _sentence(error: EvaldeskError) -> str:
    return f"{str(error)[:1].upper()}{str(error)[1:]}."


def _with_grid(form: VariantForm, variants: FormVariants, estimates: Sequence[VariantEstimate]) -> VariantForm:
    """The form with the grid of all variants, the levels of the first option as columns."""
    costs = {each.name: each for each in estimates}
    most = max((each.cost for each in estimates if each.cost is not None), default=0.0)
    letters = dict(zip((each.name for each in variants.variants), LETTERS[form.n_earlier :], strict=False))

    def cell(name: str) -> GridCell:
        own = costs.get(name)
        is_played = name not in variants.left_out
        if own is None or own.cost is None:
            return GridCell(name, letters.get(name, ""), is_played, "", variant_cost_words(own) if own else "", None)
        share = 100 * own.cost / most if most else None
        return GridCell(name, letters.get(name, ""), is_played, cost_words(own.cost), variant_cost_words(own), share)

    (first, columns), *others = variants.spans
    if variants.is_list:
        places = zip_longest(*(levels for _, levels in variants.spans), fillvalue=AS_IT_IS)
        rows = [(name, [cell(name)]) for name in map("/".join, places)]
        form = replace(form, heads=("Cost of a trial",), corner="Variant")
    elif others:
        rows = [
            (" / ".join(levels), [cell("/".join((column, *levels))) for column in columns])
            for levels in product(*(levels for _, levels in others))
        ]
        form = replace(form, heads=columns, corner=" / ".join(BY_NAME[name].title for name, _ in others))
    else:
        rows = [(column, [cell(column)]) for column in columns]
        form = replace(form, heads=("Cost of a trial",), corner=BY_NAME[first].title)
    sizes = [len(rows)] if variants.is_list else [len(levels) for _, levels in variants.spans]
    return replace(form, rows=rows, sizes=" × ".join(map(str, sizes)))


def _names(form_values: Typed) -> list[str]:
    """The options that vary, each once, in order."""
    return list(dict.fromkeys(str(each) for each in form_values.getlist(VARY) if each))


def _values(form_values: Typed, name: str) -> list[str]:
    texts = (str(each).replace("\r\n", "\n").strip() for each in form_values.getlist(f"{VARY}.{name}"))
    return [text for text in texts if text]


def _offered(names: Sequence[str]) -> list[tuple[str, str]]:
    """The options that can be varied still, the usual ones first."""
    options = {each.name: each for each in offered("form") if each.name not in OF_EXPERIMENT and each.name not in names}
    ordered = [*(name for name in FIRST if name in options), *(name for name in options if name not in FIRST)]
    return [(name, options[name].title) for name in ordered]


def _check_offered(name: str) -> None:
    """Raise UsageError for an option that a page does not vary."""
    if name not in dict(_offered(())):
        raise UsageError(
            f"{name[:NAME_LIMIT]!r} cannot be varied in a form; `evaldesk eval --vary` has all options", field=VARY
        )


def _varied_field(
    name: str, values: Sequence[str], choices: Mapping[str, Sequence[str]], workspace: Path
) -> VariedField:
    option = BY_NAME[name]
    if name == INSTRUCTION:
        return VariedField(
            option, values, (AS_IT_IS, *(f"@{each}" for each in prompt_files(workspace))), "File or text"
        )
    options = choices.get(name, ())
    add = {"model": "Model"}.get(name, "Value")
    if option.kind == "switch":
        return VariedField(option, values, ("yes", "no"), add)
    return VariedField(option, values, (AS_IT_IS, *options) if options or name == "model" else (), add)


def _points(text: str) -> float | None:
    """The points that were typed, as a rate; None where they are none from 0.1 to 100."""
    try:
        points = float(text)
    except ValueError:
        return None
    return points / 100 if 0.1 <= points <= 100 else None
