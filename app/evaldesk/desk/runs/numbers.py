"""The numbers of stored runs that gates and summaries are made of, read from the totals, never from transcripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from evaldesk.desk.other_tools import difference, may_differ, tools_beside
from evaldesk.desk.runs.gates import CaseNumbers, Ending, RunNumbers, conclude
from evaldesk.desk.runs.names import evalset_name
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.model import Conclusion, Counts, Outcome
from evaldesk.model.comparison import Baseline, PlayedCase, RunChange
from evaldesk.model.evalset import CaseKey, assertions, case_names, numbered_keys
from evaldesk.model.run import LIVE
from evaldesk.model.stored import CaseRow, RunSummary
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.statistics.pass_k import CaseCounts
from evaldesk.store import RunStore, Store


def run_numbers(store: Store, run: RunSummary) -> RunNumbers:
    """The numbers of one run."""
    outcomes = store.runs.case_outcomes(run.id)
    keys = numbered_keys((evalset_name(run.config), each.case_id, each.digest) for each in outcomes)
    cases = [
        CaseNumbers(
            id=each.case_id,
            counts=each.counts,
            pass_threshold=run.config.pass_threshold,
            key=key,
        )
        for each, key in zip(outcomes, keys, strict=True)
    ]
    endings = (Ending(run.status, run.reason),)
    numbers = RunNumbers.of_cases(_named(cases, keys), cost=run.cost, n_unpriced=run.n_unpriced, endings=endings)
    return replace(numbers, counts=replace(numbers.counts, not_applicable=run.counts.not_applicable))


def planned_numbers(plan: RunPlan) -> RunNumbers:
    """The numbers of a run that was not begun."""
    name = evalset_name(plan.config)
    numbers = RunNumbers.of_cases(
        CaseNumbers(case.id, Counts(plan.config.n), key=CaseKey(name, case.id)) for case in plan.cases
    )
    n = plan.config.n_partly_asserted * plan.config.n
    return replace(numbers, counts=replace(numbers.counts, not_applicable=n))


def read_conclusion(runs: RunStore, run: RunSummary, outcomes: Sequence[CaseCounts] | None = None) -> Conclusion:
    """The conclusion of a stored run, by the gates it was started with; no case is read by name."""
    rows = runs.outcome_counts(run.id) if outcomes is None else outcomes
    endings = (Ending(run.status, run.reason),)
    numbers = RunNumbers(run.counts, tuple(rows), cost=run.cost, n_unpriced=run.n_unpriced, endings=endings)
    return conclude(run.config.gates, numbers, read_change(runs, run))


def read_outcome(runs: RunStore, run: RunSummary) -> Outcome | None:
    """The conclusion of a stored run, in one word; None while it goes on."""
    return None if run.status in LIVE else read_conclusion(runs, run).outcome


def read_change(runs: RunStore, run: RunSummary) -> RunChange | None:
    """The change of a stored run against the baseline it was started with; None without one."""
    return None if run.config.gates.max_regressions is None else _change(runs, run.id, run.counts)


@lru_cache(maxsize=256)
def _change(runs: RunStore, run_id: int, _: Counts) -> RunChange | None:
    """The comparison with the baseline; kept as long as the counts of the run stay the same."""
    baseline = runs.baseline(run_id)
    if baseline is None:
        return None
    return compare_cases(baseline.name, baseline.cases, played_cases(runs, [runs.summary(run_id)]))


def compared_plans(plans: Sequence[RunPlan], baseline: Baseline) -> list[RunPlan]:
    """The plans of one command, each with the baseline without the cases that belong to another of them."""
    names = [evalset_name(plan.config) for plan in plans]
    n_before: Counter[tuple[str, str]] = Counter()
    compared = []
    for plan, name in zip(plans, names, strict=True):
        others = [case for case in baseline.cases if case.key.evalset not in names]
        own = [
            replace(case, key=replace(case.key, ordinal=0))
            for case in baseline.cases
            if case.key.evalset == name and case.key.ordinal == n_before[name, case.key.case_id]
        ]
        n_before.update((name, case.id) for case in plan.cases)
        compared.append(replace(plan, baseline=Baseline(baseline.name, (*own, *others))))
    return compared


def joined_numbers(runs: Sequence[RunNumbers]) -> RunNumbers:
    """Several runs as one; a case id that occurs again is named with its eval set, so that no case hides another."""
    cases = [case for run in runs for case in run.cases]
    named = _named(cases, _renumbered([case.key for case in cases]))
    found = RunNumbers.of_cases(
        named,
        cost=sum(run.cost for run in runs),
        n_unpriced=sum(run.n_unpriced for run in runs),
        endings=[ending for run in runs for ending in run.endings],
    )
    return replace(found, counts=Counts.total(run.counts for run in runs))


def played_cases(store: RunStore, runs: Sequence[RunSummary]) -> tuple[PlayedCase, ...]:
    """The cases of runs that belong together, as they are compared with those of a baseline."""
    found = [case for run in runs for case in _played(store, run)]
    keys = _renumbered([case.key for case in found])
    return tuple(replace(case, key=key) for case, key in zip(found, keys, strict=True))


def _played(runs: RunStore, run: RunSummary) -> list[PlayedCase]:
    outcomes, snapshots = runs.case_outcomes(run.id), runs.cases(run.id)
    return [
        PlayedCase(
            key=CaseKey(evalset_name(run.config), each.case_id, 0, each.digest),
            strip=each.strip,
            pass_threshold=run.config.pass_threshold,
            errors_are_failures=run.config.errors_are_failures,
            asserted=assertions(case),
        )
        for each, case in zip(outcomes, snapshots, strict=True)
    ]


def _named(cases: Sequence[CaseNumbers], keys: Sequence[CaseKey]) -> tuple[CaseNumbers, ...]:
    names = case_names(keys)
    return tuple(replace(case, id=names[key.place], key=key) for case, key in zip(cases, keys, strict=True))


def _renumbered(keys: Sequence[CaseKey]) -> list[CaseKey]:
    """Keys of several runs: two files may give their eval sets the same id."""
    return numbered_keys((key.evalset, key.case_id, key.digest) for key in keys)


ROWS_AT_ONCE = 200
NOT_PLAYED = "."


def read_result(store: Store, run_id: int) -> RunResult:
    """The whole run with every transcript. Raises NotFoundError."""
    summary = store.runs.summary(run_id)
    cases = tuple(read_cases(store, run_id))
    change = read_change(store.runs, summary)
    return RunResult(run_id, summary.config, cases, summary.status, summary.reason, change)


def read_cases(store: Store, run_id: int) -> Iterator[CaseResult]:
    """The cases of a run in the order of the file, each with its trials. Raises NotFoundError."""
    config = store.runs.summary(run_id).config
    for row in case_rows(store, run_id):
        played = [(row.case_index, index) for index, mark in enumerate(row.strip) if mark != NOT_PLAYED]
        trials = store.runs.trials(run_id, played) if played else {}
        yield CaseResult(
            case=store.runs.case(run_id, row.case_index),
            trials=tuple(trials[key] for key in played),
            n_planned=config.n,
            errors_are_failures=config.errors_are_failures,
        )


def case_rows(store: Store, run_id: int) -> Iterator[CaseRow]:
    """The line of every case, in the order of the file."""
    after = ""
    while rows := store.runs.case_rows(run_id, sort="file", after=after, limit=ROWS_AT_ONCE):
        yield from rows
        after = rows[-1].cursor


@dataclass(frozen=True, slots=True)
class OtherVerdict:
    """A case of which a tool says something else than this run: in `n` of `n_trials` trials, for one reason."""

    tool: str
    case_id: str
    sentence: str
    n: int
    n_trials: int

    def __str__(self) -> str:
        of = f" ({self.n} of {self.n_trials} trials)" if self.n_trials > 1 else ""
        return f"{self.case_id}{of}: {self.sentence}"


def other_verdicts(store: Store, run: RunSummary, spelled: str = "") -> Iterator[OtherVerdict]:
    """Every verdict of the run that another tool would not give, in either direction, by case and reason."""
    config = run.config
    tools = tools_beside(config, spelled)
    for row in case_rows(store, run.id) if tools else ():
        case = store.runs.case(run.id, row.case_index)
        asked = [tool for tool in tools if may_differ(tool, config, case, row.strip)]
        done = [(row.case_index, at) for at, mark in enumerate(row.strip) if mark != NOT_PLAYED]
        trials = store.runs.trials(run.id, done) if asked and done else {}
        for tool in asked:
            said = Counter(difference(tool, case, trial, config.criteria) for trial in trials.values())
            yield from (OtherVerdict(tool, row.case_id, text, n, len(row.strip)) for text, n in said.items() if text)
