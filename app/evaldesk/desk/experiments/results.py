"""The results of an experiment: the scored trials of its variants, and their analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias, TypeVar

from evaldesk.desk.experiments.variants import baseline_index
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model.comparison import TO_PLAY, PlayedCase, Sample, match_cases
from evaldesk.model.conclusion import Counts, Interval
from evaldesk.model.evalset import CaseKey
from evaldesk.model.experiment import Analysis, Experiment, ExperimentPlan
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.statistics.experiment import analyse, worse_than_leader
from evaldesk.store import RunStore, Store
from evaldesk.store.runs.run_store import is_imported

Name = TypeVar("Name", int, str)
CaseId: TypeAlias = tuple[str, str, int]
"""A case by its id, its content and its place among equal ones."""
VariantCell: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Results:
    """The results of an experiment as they are stored now.

    `runs` has the run of each variant by its index; one that was deleted is missing. `n_blocks` are the trials of each
    case that count, which every variant has that was not dropped and did not fail; `is_cut` where some of them have
    more, as at the cap of a budget or while the experiment goes on.
    """

    experiment: Experiment
    runs: Mapping[int, RunSummary]
    n_blocks: int
    is_cut: bool
    analysis: Analysis

    def run_of(self, variant: str) -> RunSummary | None:
        """The run of the variant of that name; None where it was deleted."""
        names = [each.name for each in self.experiment.plan.variants]
        return self.runs.get(names.index(variant))

    @property
    def later_variants(self) -> tuple[str, ...]:
        """The variants that were added after the first trial, and so were played at another time."""
        runs = {index: run for index, run in self.runs.items() if not is_imported(run.config)}
        first = min((run.started_at for run in runs.values() if run.started_at), default=None)
        variants = self.experiment.plan.variants
        return tuple(variants[index].name for index, run in runs.items() if first and run.created_at > first)

    @property
    def is_baseline_deleted(self) -> bool:
        """Whether the run of the baseline was deleted, so that no variant is compared with it."""
        names = [each.name for each in self.experiment.plan.variants]
        return names.index(self.analysis.baseline) not in self.runs

    def rows(self) -> list[dict[str, VariantCell]]:
        """A row for each variant: its rate, interval, cost and difference from the baseline, by the column."""
        rows = []
        for each in self.analysis.rates:
            run, difference = self.run_of(each.variant), self.analysis.difference_of(each.variant)
            interval, family = (difference.interval, difference.family_interval) if difference else (None, None)
            row: dict[str, VariantCell] = {"variant": each.variant, "run_id": run.id if run else None}
            row |= {"pass_rate": each.rate} | _ends("", each.interval)
            row |= {"n_cases": each.n_cases, "n_trials": each.n_trials, "cost_per_trial": each.cost}
            row |= {"difference": difference.value if difference else None}
            row |= _ends("difference_", interval) | _ends("family_", family)
            row |= {"p": difference.p if difference else None, "holm_p": difference.holm_p if difference else None}
            row |= {"word": difference.word if difference else "baseline", "may_be_best": each.may_be_best}
            rows.append(row)
        return rows


def _ends(prefix: str, interval: Interval | None) -> dict[str, VariantCell]:
    low, high = (interval.low, interval.high) if interval else (None, None)
    return {f"{prefix}low": low, f"{prefix}high": high}


def results(store: Store, experiment_id: int) -> Results:
    """The results of an experiment; the analysis is computed once for each change of its trials. Raises NotFoundError.

    While a budget cut it or it goes on, only blocks that are complete for all variants count. A variant that was
    dropped early, or deleted, does not shorten the others, nor does one whose run failed, as without its model, or has
    no trial, as one that was added after the budget was spent.
    """
    experiment = store.experiments.get(experiment_id)
    plan, runs = experiment.plan, runs_of(store, experiment)
    blocks = {index: _blocks(store.runs, run.id, _marks(run)) for index, run in runs.items()}
    playing = [index for index in blocks if index not in experiment.dropped]
    playing = [index for index in playing if runs[index].status != "failed"] or playing
    playing = [index for index in playing if runs[index].n_done or runs[index].status in LIVE] or playing
    is_cut = any(blocks[index].is_open for index in playing)
    n_whole = min((blocks[index].n_whole for index in playing), default=0)
    n_blocks = n_whole if is_cut else max((each.n_most for each in blocks.values()), default=0)
    state = _state(runs, n_blocks)
    analysis = store.experiments.analysis(experiment_id, state)
    if analysis is None:
        strips = {index: store.runs.strips(run.id) for index, run in runs.items()}
        analysis = _analyse(store, plan, runs, strips, n_blocks)
        if not store.is_read_only:
            store.experiments.keep_analysis(experiment_id, state, analysis)
    return Results(experiment, runs, n_blocks, is_cut, analysis)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The trials that every case of a run has, the most that one has, and whether some are to be played."""

    n_whole: int
    n_most: int
    is_open: bool


def _marks(run: RunSummary) -> tuple[object, ...]:
    return run.counts, run.n_cases, run.n_duplicates, run.duration_ms


@lru_cache(maxsize=256)
def _blocks(runs: RunStore, run_id: int, _: tuple[object, ...]) -> _Blocks:
    """The blocks of a run; kept as long as none of its trials ended: a page would read the trials of all variants."""
    strips = runs.strips(run_id)
    is_open = any(TO_PLAY in strip for strip in strips)
    return _Blocks(_n_whole(strips), max(map(len, strips), default=0), is_open)


def begun_so_far(store: Store, experiment_id: int) -> tuple[ExperimentPlan, int, float]:
    """The plan of an experiment, with the trials and the dollars that its variants have so far."""
    experiment = store.experiments.get(experiment_id)
    runs = runs_of(store, experiment).values()
    return experiment.plan, sum(run.n_done for run in runs), sum(run.cost for run in runs)


def worse_variants(store: Store, experiment_id: int, n_blocks: int) -> list[int]:
    """The variants that are worse than the leader after so many blocks, which are noted as dropped."""
    experiment = store.experiments.get(experiment_id)
    names = [each.name for each in experiment.plan.variants]
    runs = {index: run for index, run in runs_of(store, experiment).items() if index not in experiment.dropped}
    strips = {index: store.runs.strips(run.id) for index, run in runs.items()}
    rates = {names[index]: own for index, own in _rates_of_runs(store, runs, strips, n_blocks).items()}
    if len(rates) < 2:
        return []
    dropped_indexes = [names.index(name) for name in worse_than_leader(rates, experiment.plan.n_looks)]
    for index in dropped_indexes:
        store.experiments.note_drop(experiment_id, index, n_blocks)
    return dropped_indexes


def analyse_runs(store: Store, run_ids: Sequence[int], baseline: int = 0) -> Analysis:
    """The analysis of stored runs by their numbers, each with all of its trials; `baseline` is a place among them.

    Raises NotFoundError.
    """
    runs = {str(run_id): store.runs.summary(run_id) for run_id in run_ids}
    rates = _rates_of_runs(store, runs, {name: store.runs.strips(run.id) for name, run in runs.items()}, None)
    costs = {name: _cost(run) for name, run in runs.items()}
    unranked = {name for name, run in runs.items() if _is_no_evidence(run)}
    return analyse(rates, str(run_ids[baseline]), costs=costs, unranked=unranked)


def results_against(store: Store, experiment_id: int, run_id: int) -> Results:
    """The results with the variant of this run as the baseline, of another run with the experiment's own.

    The trials that count and the factors are the same. Raises NotFoundError.
    """
    loaded = results(store, experiment_id)
    plan, state = loaded.experiment.plan, _state(loaded.runs, loaded.n_blocks)
    members = (each for each in loaded.experiment.members if each.run_id == run_id)
    index = next((each.variant_index for each in members), plan.baseline)
    if index == plan.baseline:
        return loaded
    analysis = _analysis_against(store, experiment_id, len(plan.variants), index, loaded.n_blocks, state)
    return replace(loaded, analysis=replace(analysis, effects=loaded.analysis.effects))


def results_against_variant(store: Store, experiment_id: int, variant: str) -> Results:
    """The results with the variant of that name as the baseline. Raises NotFoundError, UsageError for a deleted run."""
    experiment = store.experiments.get(experiment_id)
    index = baseline_index([each.name for each in experiment.plan.variants], variant)
    run_id = next((each.run_id for each in experiment.members if each.variant_index == index), None)
    loaded = results(store, experiment_id)
    if run_id is None or index not in loaded.runs:
        raise UsageError(f"the run of {variant} was deleted; name another variant", field="baseline_variant")
    return results_against(store, experiment_id, run_id)


@lru_cache(maxsize=32)
def _analysis_against(
    store: Store, experiment_id: int, n_variants: int, baseline: int, n_blocks: int, state: str
) -> Analysis:
    """The analysis; kept as long as no trial ends and no variant is added."""
    experiment = store.experiments.get(experiment_id)
    runs = runs_of(store, experiment)
    strips = {index: store.runs.strips(run.id) for index, run in runs.items()}
    return _analyse(store, replace(experiment.plan, baseline=baseline), runs, strips, n_blocks)


def counts_that_count(store: Store, loaded: Results) -> dict[int, Counts]:
    """The verdicts of the trials that count in the analysis, by the number of the run."""
    runs = loaded.runs.values()
    return {
        run.id: replace(
            _first_counts(store.runs, run.id, loaded.n_blocks, _marks(run)),
            errors_are_failures=run.config.errors_are_failures,
        )
        for run in runs
    }


@lru_cache(maxsize=256)
def _first_counts(runs: RunStore, run_id: int, n_blocks: int, _: tuple[object, ...]) -> Counts:
    """The verdicts of the first trials of each case; kept as long as none of its trials ended."""
    letters = "".join(strip[:n_blocks] for strip in runs.strips(run_id))
    passed, failed, errored, unscored = (letters.count(letter) for letter in "pfeu")
    return Counts(len(letters), passed, failed, errored, unscored)


def runs_of(store: Store, experiment: Experiment) -> dict[int, RunSummary]:
    """The runs of an experiment that are there, by the indexes of their variants."""
    runs = {}
    for member in experiment.members:
        if member.run_id is None or member.is_deleted:
            continue
        try:
            runs[member.variant_index] = store.runs.summary(member.run_id)
        except NotFoundError:  # it was deleted at this moment
            continue
    return runs


def _n_whole(strips: Sequence[str]) -> int:
    """The trials that every case has."""
    return min((len(strip) if TO_PLAY not in strip else strip.index(TO_PLAY) for strip in strips), default=0)


def _state(runs: Mapping[int, RunSummary], n_blocks: int) -> str:
    """The state of all trials that an analysis is of."""
    parts = [
        f"{index}:{run.id}:{run.counts.passed}.{run.counts.failed}.{run.counts.errored}.{run.counts.unscored}:{run.cost}"
        for index, run in sorted(runs.items())
    ]
    return f"{n_blocks}/" + ",".join(parts)


def _analyse(
    store: Store,
    plan: ExperimentPlan,
    runs: Mapping[int, RunSummary],
    strips: Mapping[int, Sequence[str]],
    n_blocks: int,
) -> Analysis:
    names = [each.name for each in plan.variants]
    rates: dict[str, dict[CaseId, Sample]] = {name: {} for name in names}
    costs: dict[str, float | None] = {}
    for index, own in _rates_of_runs(store, runs, strips, n_blocks).items():
        rates[names[index]] = own
        costs[names[index]] = _cost(runs[index])
    is_from_file = all(is_imported(run.config) for run in runs.values())  # then they were played in turn elsewhere
    unranked = {names[index] for index, run in runs.items() if _is_no_evidence(run) and not is_from_file}
    unranked |= {name for name in names if not rates[name]}
    return analyse(rates, names[plan.baseline], costs=costs, grid=plan.grid, unranked=unranked)


def _rates_of_runs(
    store: Store, runs: Mapping[Name, RunSummary], strips: Mapping[Name, Sequence[str]], n_blocks: int | None
) -> dict[Name, dict[CaseId, Sample]]:
    """The rates of each run, whose cases have the ids that they have in the first run."""
    keys = {name: store.runs.case_keys(run.id) for name, run in runs.items()}
    first = next(iter(keys.values()), [])
    return {name: _rates(run, common_ids(first, keys[name]), strips[name], n_blocks) for name, run in runs.items()}


def common_ids(first: Sequence[CaseKey], keys: Sequence[CaseKey]) -> list[CaseId]:
    """The ids of the cases of a run, as the first run has them where they are the same cases. (decision 455)"""
    # The runs of an experiment nearly always play one list of cases.
    if keys == first:
        return [(key.case_id, key.digest, key.ordinal) for key in keys]
    matches = match_cases([PlayedCase(key, "") for key in first], keys)
    same = {place: case.key for place, case in matches.items()}
    named_keys = [
        own if own is not None and not own.is_edited(key) else key for key in keys for own in [same.get(key.place)]
    ]
    return [(key.case_id, key.digest, key.ordinal) for key in named_keys]


def _rates(
    run: RunSummary, case_ids: Sequence[CaseId], strips: Sequence[str], n_blocks: int | None
) -> dict[CaseId, Sample]:
    """The first scored trials of each case; a case without any is left out."""
    rates = {}
    for place, strip in zip(case_ids, strips, strict=True):
        letters = strip[:n_blocks]
        n_failed = letters.count("f") + (letters.count("e") if run.config.errors_are_failures else 0)
        n_passed = letters.count("p")
        if n_passed + n_failed:
            rates[place] = Sample.of_sums(n_passed + n_failed, n_passed, n_passed)
    return rates


def _cost(run: RunSummary) -> float | None:
    """Dollars of a trial; None where that is not known."""
    return None if run.is_cost_unknown or not run.n_done else run.cost / run.n_done


def _is_no_evidence(run: RunSummary) -> bool:
    """Whether the trials were imported, or may be answered from a recording."""
    return is_imported(run.config) or run.config.recording.may_replay
