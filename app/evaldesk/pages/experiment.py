"""The page of an experiment, and the analysis of any runs of a table: one sentence, plots, factors and doubts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.desk.experiments.confirming import pair_to_confirm
from evaldesk.desk.experiments.results import Results, analyse_runs, counts_that_count, results_against
from evaldesk.desk.runs.set_changes import changes_on_page
from evaldesk.errors import NotFoundError
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.experiment import Analysis
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.analysis_plots import Forest, Scatter, best_first, forest_of, scatter_of
from evaldesk.pages.experiment_files import failure_sentences
from evaldesk.pages.experiment_progress import ExperimentProgress, progress_of
from evaldesk.pages.runs.table import PAGE_SIZE, CaseTable, RowColumn, SquaresCell, TableGroup, read_table, table_layout
from evaldesk.pages.runs.table_query import TableQuery, number_text
from evaldesk.statistics.intervals import t_95
from evaldesk.store import RunStore, Store
from evaldesk.store.runs.run_store import is_playable
from evaldesk.wording.experiments import (
    UNEQUAL_TRIALS,
    analysis_sentence,
    best_sentence,
    effect_sentences,
    later_sentence,
    luck_sentence,
    variant_difference_words,
    variant_sentences,
)
from evaldesk.wording.words import cost_words, doubt_cell, passed_cell


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The runs that fresh trials may confirm, and how many trials at what price these are."""

    baseline_id: int
    leader_id: int
    words: str


@dataclass(frozen=True, slots=True)
class VariantLine:
    """A variant beside the baseline: its letter and name, the answer in sentences, and its figures in words."""

    letter: str
    name: str
    sentences: str
    words: str


@dataclass(frozen=True, slots=True)
class AnalysisPanel:
    """The analysis of the runs of a table: the answer and its doubt, each variant, plots, factors and luck."""

    answer: str
    rest: str
    best: str
    variants: Sequence[VariantLine]
    forest: Forest | None
    scatter: Scatter | None
    effects: Sequence[str]
    luck: str
    confirmation: Confirmation | None


@dataclass(frozen=True, slots=True)
class ExperimentPage:
    """All that the page of an experiment shows."""

    id: int
    title: str
    table: CaseTable
    panel: AnalysisPanel
    notes: Sequence[str]
    basis: str
    n_trials: int
    cost: float | None
    active_ms: float
    progress: ExperimentProgress

    @property
    def is_live(self) -> bool:
        """Whether a variant of it is played."""
        return self.progress.is_live

    def export_href(self, name: str) -> str:
        """The address of an export of the experiment, against the baseline of the page."""
        query = self.table.query
        return TableQuery(f"{query.base}/{name}", query.run_ids, baseline=query.baseline).href()

    def post_href(self, name: str) -> str:
        """The address of a form of the experiment, after which the page is shown as it is now."""
        return replace(self.table.query, base=f"{self.table.query.base}/{name}").href()


def chosen_results(desk: Desk, experiment_id: int, values: Mapping[str, str]) -> Results:
    """The results of an experiment against the baseline that an address names. Raises NotFoundError."""
    loaded = results_against(desk.store, experiment_id, number_text(values.get("baseline", "")))
    if not any(each.run_id for each in loaded.experiment.members):
        raise NotFoundError(f"the runs of experiment {experiment_id} were deleted")
    return loaded


def read_experiment_page(
    desk: Desk,
    experiment_id: int,
    values: Mapping[str, str],
    rows: Sequence[int] | None = None,
    most: int = PAGE_SIZE,
) -> ExperimentPage:
    """The page of an experiment by the parts of its address, or with these `rows` alone.

    Raises NotFoundError; UsageError for a cursor.
    """
    store = desk.store
    loaded = chosen_results(desk, experiment_id, values)
    experiment, plan = loaded.experiment, loaded.experiment.plan
    names = {each.run_id: plan.variants[each.variant_index].name for each in experiment.members if each.run_id}
    run_ids = list(names)
    first = next((each for each in run_ids if str(each) == values.get("baseline")), 0)
    members = {each.run_id: each.variant_index for each in experiment.members}
    own_first = next((each for each in run_ids if members[each] == plan.baseline), run_ids[0])
    ordered = [first or own_first, *(each for each in run_ids if each != (first or own_first))]
    query = replace(TableQuery.of(f"/experiments/{experiment_id}", ordered, values), baseline=first)
    marks = {
        each.run_id: f"dropped after {experiment.dropped[each.variant_index]} of {_n_most(loaded)}"
        for each in experiment.members
        if each.run_id and each.variant_index in experiment.dropped
    }
    marks |= {run.id: "failed" for run in loaded.runs.values() if run.status == "failed"}
    table = read_table(desk, query, titles=names, marks=marks, rows=rows, most=most)
    run_by_id = {run.id: run for run in loaded.runs.values()}
    summaries = [run_by_id[run_id] for run_id in ordered if run_id in run_by_id]
    letters = {names[run_id]: letter for run_id, letter in table.letters.items()}
    analysis = loaded.analysis
    runs_by_name = {names[summary.id]: summary for summary in summaries}
    panel = analysis_panel(
        store.runs, analysis, letters, runs_by_name, effect_sentences(analysis.effects, plan.factors)
    )
    notes = [
        f"Variant {names[run_id]} was deleted; its column is empty." for run_id in ordered if run_id not in run_by_id
    ]
    if loaded.is_baseline_deleted:
        notes.append(f"{analysis.baseline} was the baseline: choose another column by its menu, or restore the run.")
    notes += failure_sentences(loaded) + set_sentences(desk, list(loaded.runs.values()))
    if loaded.is_cut:
        notes.append(f"Only the first {loaded.n_blocks} trials of each case count, which all variants have.")
    if len({summary.n_most for summary in summaries}) > 1:
        notes.append(UNEQUAL_TRIALS)
    if later := later_sentence(loaded.later_variants):
        notes.append(later)
    cost = sum(summary.cost for summary in summaries)
    return ExperimentPage(
        id=experiment_id,
        title=f"Experiment {experiment_id}, {plan.name}",
        table=replace(
            table,
            groups=with_case_means(table.groups, analysis, names),
            columns=_with_counts(store, loaded, table) if loaded.is_cut else table.columns,
        ),
        panel=panel,
        notes=notes,
        basis=_basis(store.runs, loaded, summaries),
        n_trials=sum(summary.n_done for summary in summaries),
        cost=cost if any(summary.has_models for summary in summaries) else None,
        active_ms=max((summary.active_ms for summary in summaries), default=0.0),
        progress=progress_of(desk, loaded.experiment, loaded.runs),
    )


def _basis(runs: RunStore, loaded: Results, summaries: Sequence[RunSummary]) -> str:
    """`3 variants, the same 40 cases, played in turn`, or the cases that all have in common and another order."""
    variants = counted(len(loaded.experiment.plan.variants), "variant")
    if not summaries:
        return f"{variants}, whose runs were deleted"
    places = table_layout(runs, summaries).places
    if places is None:
        cases = f"the same {counted(summaries[0].n_cases, 'case')}"
    else:
        n_shared = sum(None not in place for place in places)
        cases = f"{counted(len(places), 'case')}, of which {n_shared:,} are in all"
    order = "not all at one time" if loaded.later_variants else "in turn"
    return f"{variants}, {cases}, played {order}"


def _with_counts(store: Store, loaded: Results, table: CaseTable) -> Sequence[RowColumn]:
    """The columns, in whose foot only those trials are counted that count in the analysis."""
    counts_by_run = counts_that_count(store, loaded)

    def with_counts(column: RowColumn) -> RowColumn:
        counts = None if column.group is None else counts_by_run.get(table.groups[column.group].run_id)
        if counts is None or not isinstance(column.total.value, SquaresCell):
            return column
        total = replace(column.total, value=replace(column.total.value, passed=passed_cell(counts)))
        return replace(column, total=total)

    return [with_counts(column) for column in table.columns]


def set_sentences(desk: Desk, runs: Sequence[RunSummary]) -> list[str]:
    """How the eval set of these runs differs now from the cases that they play, once for each version of a set."""
    different_runs = {(run.config.evalset_id, run.config.evalset_version): run for run in reversed(runs)}
    changes = [changes_on_page(desk.evalsets, desk.stored_runs, run) for run in reversed(different_runs.values())]
    return [
        f"{each.sentence} All variants have the cases as they were at the start of the experiment."
        for each in changes
        if each
    ]


def with_case_means(groups: Sequence[TableGroup], analysis: Analysis, names: Mapping[int, str]) -> Sequence[TableGroup]:
    """The columns with the pass rates of the analysis, in which each case weighs the same, as at every other door."""
    rates = {each.variant: each for each in analysis.rates}

    def with_rate(group: TableGroup) -> TableGroup:
        variant = rates.get(names.get(group.run_id, "")) if group.summary else None
        if variant is None:
            return group
        low, high = (variant.interval.low, variant.interval.high) if variant.interval else (0.0, 1.0)
        doubt = doubt_cell(variant.n_trials, variant.interval)
        return replace(group, rate=variant.rate, low=low, high=high, doubt=doubt)

    return [with_rate(group) for group in groups]


def _n_most(loaded: Results) -> int:
    return max((run.n_most for run in loaded.runs.values()), default=loaded.n_blocks)


def run_names(summaries: Sequence[RunSummary]) -> dict[int, str]:
    """The name of each run of a table in its analysis: `run 7`."""
    return {summary.id: f"run {summary.id}" for summary in summaries}


def runs_panel(
    store: Store, summaries: Sequence[RunSummary], analysis: Analysis, letters: Mapping[int, str]
) -> AnalysisPanel:
    """The analysis of any runs of a table against the first of them; `letters` are those of the columns."""
    names = run_names(summaries)
    letters_by_name = {names[summary.id]: letters[summary.id] for summary in summaries}
    return analysis_panel(store.runs, analysis, letters_by_name, {names[each.id]: each for each in summaries}, ())


def named_analysis(store: Store, summaries: Sequence[RunSummary], names: Mapping[int, str]) -> Analysis:
    """The analysis of these runs, the first of them the baseline, by their names."""
    marks = tuple((each.id, each.counts, each.cost) for each in summaries)
    return _named_analysis(store, marks, tuple((str(run_id), name) for run_id, name in names.items()))


@lru_cache(maxsize=32)
def _named_analysis(store: Store, marks: tuple[tuple[Any, ...], ...], names: tuple[tuple[str, str], ...]) -> Analysis:
    """The analysis with the names of its runs; kept as long."""
    return _renamed(_analysis(store, marks), dict(names))


@lru_cache(maxsize=32)
def _analysis(store: Store, marks: tuple[tuple[Any, ...], ...]) -> Analysis:
    """The analysis; kept as long as no trial of these runs ends."""
    return analyse_runs(store, [run_id for run_id, *_ in marks])


def _renamed(analysis: Analysis, names: Mapping[str, str]) -> Analysis:
    def all_names(some: Sequence[str]) -> tuple[str, ...]:
        return tuple(names[each] for each in some)

    return replace(
        analysis,
        baseline=names[analysis.baseline],
        rates=tuple(
            replace(
                each,
                variant=names[each.variant],
                beaten_by=all_names(each.beaten_by),
                dominated_by=all_names(each.dominated_by),
            )
            for each in analysis.rates
        ),
        differences=tuple(replace(each, variant=names[each.variant]) for each in analysis.differences),
        pairs=tuple(replace(each, first=names[each.first], second=names[each.second]) for each in analysis.pairs),
        luck=replace(analysis.luck, leader=names[analysis.luck.leader]) if analysis.luck else None,
    )


def analysis_panel(
    runs: RunStore,
    analysis: Analysis,
    letters: Mapping[str, str],
    runs_by_name: Mapping[str, RunSummary],
    effects: Sequence[str],
) -> AnalysisPanel:
    """The panel of an analysis; `letters` are those of the columns."""
    answer, _, rest = analysis_sentence(analysis).partition("; ")
    costs = {name: cost_interval(runs, summary) for name, summary in runs_by_name.items()}
    base = analysis.baseline
    letter_of_base = letters.get(base, base)
    trial_costs = {each.variant: each.cost for each in analysis.rates}
    variants = [
        VariantLine(
            letters.get(each.variant, "?"),
            each.variant,
            variant_sentences(each, letter_of_base, trial_costs.get(each.variant), trial_costs.get(base)),
            variant_difference_words(each),
        )
        for each in best_first(analysis.differences)
    ]
    return AnalysisPanel(
        answer,
        rest,
        f"{best_sentence(analysis)}.",
        variants,
        forest_of(analysis, letters),
        scatter_of(analysis, letters, costs),
        effects,
        luck_sentence(analysis),
        _confirmation(analysis, runs_by_name),
    )


def _confirmation(analysis: Analysis, runs_by_name: Mapping[str, RunSummary]) -> Confirmation | None:
    """The leader and its baseline; None where one of them is still playing, was not played here, or was deleted."""
    names = pair_to_confirm(analysis)
    if names is None or any(
        (run := runs_by_name.get(name)) is None or run.status in LIVE or not is_playable(run.config) for name in names
    ):
        return None
    baseline, leader = (runs_by_name[name] for name in names)
    n = max(baseline.config.n, leader.config.n)
    n_trials = (baseline.n_cases + leader.n_cases) * n
    costs = [analysis.rate_of(name).cost for name in names]
    words = f"{names[1]} against {names[0]} again: {n_trials:,} trials with new seeds"
    if None not in costs and any(costs):
        dollars = sum((cost or 0.0) * run.n_cases * n for cost, run in zip(costs, (baseline, leader), strict=True))
        words += f", about {cost_words(dollars)}"
    return Confirmation(baseline.id, leader.id, words)


def cost_interval(runs: RunStore, summary: RunSummary) -> Interval | None:
    """The 95 % interval of the cost of a trial, over cases; None where the cost is not known."""
    if not summary.has_models or summary.is_cost_unknown or not summary.cost:
        return None
    return _cost_interval(runs, summary.id, (summary.counts, summary.cost))


@lru_cache(maxsize=256)
def _cost_interval(runs: RunStore, run_id: int, _: tuple[Any, ...]) -> Interval | None:
    samples = runs.trial_samples(run_id)[1]
    means = [sample.mean for sample in samples.values()]
    if len(means) < 2:
        return None
    mean = fmean(means)
    error = (sum((each - mean) ** 2 for each in means) / (len(means) - 1) / len(means)) ** 0.5
    half = t_95(len(means) - 1) * error
    return Interval(max(mean - half, 0.0), mean + half)
