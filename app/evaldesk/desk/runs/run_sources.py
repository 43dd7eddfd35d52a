"""Runs and result files compared with one another: the analysis over their shared cases, and drops below a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from evaldesk.desk.runs.baseline import read_baseline_file
from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.run_changes import RunDifference, changes_sentence, differences
from evaldesk.desk.runs.stored_runs import StoredRuns, open_run_store
from evaldesk.errors import UsageError
from evaldesk.model.comparison import PlayedCase, Sample, match_cases
from evaldesk.model.conclusion import Answer
from evaldesk.model.evalset import CasePosition, numbered_keys
from evaldesk.model.experiment import Analysis
from evaldesk.model.stored import RunSummary
from evaldesk.settings import Settings
from evaldesk.statistics.experiment import analyse
from evaldesk.store import Store
from evaldesk.store.runs.run_store import is_imported

MAX_SOURCES = 20


@dataclass(frozen=True, slots=True)
class RunSource:
    """A stored run or a result file: its name, its cases, and why its trials are no fresh evidence.

    `changes` are those of eval set, criteria and gates since the baseline, where both are stored runs. A
    `shard`, such as 2/5, is a part of a run.
    """

    name: str
    cases: Sequence[PlayedCase]
    mark: str = ""
    summary: RunSummary | None = None
    changes: Sequence[RunDifference] = ()
    changes_words: str = ""
    shard: str = ""

    @property
    def run_id(self) -> int | None:
        """The number of a stored run."""
        return self.summary.id if self.summary else None

    @property
    def counts(self) -> tuple[int, int]:
        """The passed and the scored trials."""
        letters = "".join(case.scored_letters for case in self.cases if not case.is_left_out)
        return letters.count("p"), len(letters)


@dataclass(frozen=True, slots=True)
class Drop:
    """The pass rate of a source below that of the baseline over shared cases, 0 to 1; None without a shared case."""

    name: str
    value: float | None
    n_cases: int


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """Several sources with their analysis against the first, and whether one dropped by more than `max_drop`."""

    sources: Sequence[RunSource]
    analysis: Analysis
    drops: Sequence[Drop]
    max_drop: float | None

    @property
    def answer(self) -> Answer | None:
        """The answer of the gate; None where no drop was bounded."""
        if self.max_drop is None:
            return None
        if any(each.value is not None and each.value > self.max_drop + 1e-9 for each in self.drops):
            return "failed"
        return "undecided" if any(each.value is None for each in self.drops) else "held"


def read_sources(names: Sequence[str], home: Callable[[], Settings], baseline: int = 0) -> list[RunSource]:
    """The runs and files by these names; the workspace `home` is opened only for a run.

    Raises UsageError, NotFoundError, WorkspaceError, TrustError.
    """
    _check_names(names, "runs or files")
    store: Store | None = None
    sources = []
    with ExitStack() as stack:
        for name in names:
            if Path(name).is_file():
                sources.append(_of_file(name))
                continue
            if store is None:
                store = stack.enter_context(open_run_store(home()))
            sources.append(_of_run(StoredRuns(store.runs), name))
        return _with_changes(store, sources, baseline) if store else sources


def read_run_sources(names: Sequence[str], store: Store, baseline: int = 0) -> list[RunSource]:
    """The stored runs by these names; no file is read. Raises UsageError, NotFoundError."""
    _check_names(names, "runs")
    return _with_changes(store, [_of_run(StoredRuns(store.runs), name) for name in names], baseline)


def _with_changes(store: Store, sources: Sequence[RunSource], baseline: int) -> list[RunSource]:
    first = sources[baseline].summary
    with_changes = []
    for source in sources:
        changes: Sequence[RunDifference] = ()
        if first and source.summary and source.summary.id != first.id:
            changes = differences(store, first, source.summary)
        words = changes_sentence(first, source.summary, changes) if first and source.summary else ""
        with_changes.append(replace(source, changes=changes, changes_words=words))
    return with_changes


def _check_names(names: Sequence[str], kinds: str) -> None:
    if not 2 <= len(names) <= MAX_SOURCES:
        raise UsageError(f"compare takes 2 to {MAX_SOURCES} {kinds}, got {len(names)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{twice} is named twice; name different {kinds}")


def _of_file(name: str) -> RunSource:
    baseline = read_baseline_file(name)
    cases = baseline.cases if baseline else ()
    return RunSource(
        name,
        [replace(case, key=replace(case.key, evalset="")) for case in cases],
        "file",
        shard=baseline.shard if baseline else "",
    )


def _of_run(runs: StoredRuns, name: str) -> RunSource:
    summary = runs.find_by_name(name)
    rows, config = runs.store.case_outcomes(summary.id), summary.config
    keys = numbered_keys(("", row.case_id, row.digest) for row in rows)
    cases = [
        PlayedCase(
            key,
            row.verdicts,
            config.pass_threshold,
            config.errors_are_failures,
            is_left_out=row.case_id in config.left_out,
        )
        for key, row in zip(keys, rows, strict=True)
    ]
    mark = "imported" if is_imported(config) else "replayed" if repeats_recorded(config) else ""
    return RunSource(f"run {summary.id}", cases, mark, summary, shard=config.shard or "")


def left_out_places(sources: Sequence[RunSource]) -> frozenset[CasePosition]:
    """The cases that are in quarantine in one of the sources."""
    return frozenset(case.key.place for source in sources for case in source.cases if case.is_left_out)


def compare_sources(sources: Sequence[RunSource], baseline: int = 0, max_drop: float | None = None) -> SourceComparison:
    """Compare the sources with the one at the place `baseline`, over the cases that each shares with it.

    A case that is in quarantine in one of them is compared in none.
    """
    left_out = left_out_places(sources)
    sources = [
        replace(source, cases=[replace(case, is_left_out=case.key.place in left_out) for case in source.cases])
        for source in sources
    ]
    first = sources[baseline]
    keys = [case.key for case in first.cases]
    rates = {
        first.name: {
            case.key.place: sample for case in first.cases if not case.is_left_out and (sample := _sample(case))
        }
    }
    for source in sources:
        if source is not first:
            matches = match_cases(source.cases, keys)
            content = {key.place: key for key in keys}
            rates[source.name] = {
                place: sample
                for place, case in matches.items()
                if not case.is_left_out
                and (sample := _sample(case))
                and not (place in content and case.key.is_edited(content[place]))
            }
    unranked = {source.name for source in sources if source.mark in ("imported", "replayed")}
    analysis = analyse(rates, first.name, unranked=unranked)
    shards = {source.name for source in sources if source.shard}
    drops = [
        Drop(
            each.variant,
            -each.comparison.difference if each.comparison and not shards & {each.variant, first.name} else None,
            each.n_cases,
        )
        for each in analysis.differences
    ]
    return SourceComparison(sources, analysis, drops, max_drop)


def _sample(case: PlayedCase) -> Sample | None:
    """A passed trial is 1, another scored one 0; None without a scored trial."""
    letters = case.scored_letters
    return Sample.of_sums(len(letters), letters.count("p"), letters.count("p")) if letters else None
