"""The runs of a workspace as they are stored: names, numbers and conclusions from the totals, trials on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from pathlib import PurePath
from typing import Any, Literal, get_args

from evaldesk.desk.other_tools import difference, has_other_scores, may_differ, tools_beside, unscored_by
from evaldesk.desk.process_owner import is_at_work, is_here
from evaldesk.desk.runs.baseline import read_baseline_file
from evaldesk.desk.runs.fresh_trials import repeats_recorded, without_evidence, without_fresh_trials
from evaldesk.desk.runs.gates.bars import bars_of, is_asserted, weaker_words
from evaldesk.desk.runs.gates.conclusion import (
    OF_EACH_CASE,
    CaseNumbers,
    Ending,
    Kinds,
    RunNumbers,
    Spent,
    case_counts,
    conclude,
)
from evaldesk.desk.runs.plan import RunPlan, foresee
from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.desk.trust import check_store
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.matching.case_version import case_version
from evaldesk.metrics import known_metric
from evaldesk.model import Capture, Case, Conclusion, Counts, Gates, Outcome, RunConfig, RunStatus, TrialResult
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.client_budget import MARK
from evaldesk.model.comparison import Bar, Baseline, Comparison, PlayedCase, RunChange, match_cases
from evaldesk.model.conclusion import VERDICTS, Interval
from evaldesk.model.evalset import CaseKey, assertions, case_names, numbered_keys
from evaldesk.model.history import CaseHistory, RunDays, SetHistory
from evaldesk.model.run import LIVE
from evaldesk.model.stored import CaseRow, MetricRow, RunSummary, TrialKey
from evaldesk.run_options import MAX_RUN_NAME
from evaldesk.settings import Settings
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.statistics.comparison import compare_scores
from evaldesk.statistics.history.days import day_shifts
from evaldesk.statistics.intervals import CaseCounts, score_interval
from evaldesk.store import RunStore, Store
from evaldesk.store.runs.histories import NO_HISTORY, history_class
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.words import counted_words, named_words

ROWS_AT_ONCE = 200
TRIALS_AT_ONCE = 100
"""Trials that are in memory together while a run is read to its end."""
CAPTURED_CASES = 20
NOT_PLAYED = "."
MOST_SEARCHED = 1000
MOST_LISTED = 10
RECENT_TRIALS = 200
RECENT_RUNS = 20
_MOST_LATER = 200
"""The newest runs, among which the later ones of a command are looked for."""


@contextmanager
def open_stored_runs(settings: Settings) -> Iterator[StoredRuns]:
    """The runs of the workspace. Raises as `open_run_store`."""
    with open_run_store(settings) as store:
        yield StoredRuns(store.runs)


@contextmanager
def open_run_store(settings: Settings) -> Iterator[Store]:
    """The store of runs that are there. Raises WorkspaceError without a database, TrustError for a foreign server."""
    check_store(settings)
    with Store.open(settings.database, must_exist=True) as store:
        yield store


class StoredRuns:
    """The runs of a workspace, read and never changed. Raises NotFoundError for a run that is not there."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.summary: Callable[[int], RunSummary] = store.summary
        self.metrics = store.metric_rows
        self.errors = store.error_groups
        self.outcomes = store.outcome_counts
        self.snapshots = store.cases
        self.last_verdicts = store.last_verdicts
        self.last_run = store.last_run
        self.newest_of_evalsets = store.newest_of_evalsets

    @property
    def store(self) -> RunStore:
        """The rows of the runs, for the read models of pages."""
        return self._store

    def find_by_name(self, name: str) -> RunSummary:
        """The run with that number, or the newest whose name is `name`, or begins so where only one name does.

        Raises NotFoundError, and UsageError where several names begin so.
        """
        if name.isdecimal():
            return self._numbered(int(name))
        runs: dict[str, RunSummary] = {}
        for run in self._store.list(limit=MOST_SEARCHED):
            runs.setdefault(run_name(run), run)
        if name in runs:
            return runs[name]
        if name.strip() and name.isprintable() and (older_run := self.newest_of_name(name)):
            return older_run
        names = [known_name for known_name in runs if name.strip() and known_name.startswith(name)]
        if len(names) > 1:
            name_list = ", ".join(f"{known_name} ({runs[known_name].id})" for known_name in names[:MOST_LISTED])
            more = ", …" if len(names) > MOST_LISTED else ""
            raise UsageError(
                f"{len(names):,} runs begin with {name!r}: {name_list}{more}; give more of the name, or a number"
            )
        if not names:
            raise _unknown_run(name, [known_name for known_name, run in runs.items() if own_name(run)])
        return runs[names[0]]

    def _numbered(self, run_id: int) -> RunSummary:
        try:
            return self.summary(run_id)
        except NotFoundError as error:
            newest = ", ".join(str(run.id) for run in self._store.list(limit=3))
            raise NotFoundError(f"{error}; the newest here: {newest}" if newest else str(error)) from error

    def newest_of_name(self, name: str) -> RunSummary | None:
        """The newest run of exactly this name."""
        return next((run for run in self._store.iterate_named(name) if own_name(run) == name), None)

    def list_newest(
        self,
        status: RunStatus | None = None,
        limit: int | None = None,
        *,
        agent_id: str | None = None,
        evalset_id: str | None = None,
        model: str | None = None,
        text: str = "",
        is_part: bool = False,
        before: int | None = None,
    ) -> tuple[Sequence[RunSummary], int]:
        """The newest of the matching runs, `limit` of them or all, and the number of all.

        They begin before the run `before`, if given. With `is_part` agent, eval set and model are parts of names;
        `text` is looked for in these and the note.
        """
        filters: Any = {
            "agent_id": agent_id,
            "evalset_id": evalset_id,
            "model": model,
            "text": text,
            "is_part": is_part,
        }
        counts = self._store.counts_by_status(**filters)
        n_all = counts.get(status, 0) if status else sum(counts.values())
        most = max(1, n_all) if limit is None else limit
        return self._store.list(status=status, limit=most, before=before, **filters), n_all

    def find_last_run(self, agent_id: str, evalset_id: str) -> RunSummary | None:
        """The newest run of an agent and an eval set with a played trial, re-scored and replayed runs left out."""

        def is_played(run: RunSummary) -> bool:
            return run.config.source_run_id is None and not repeats_recorded(run.config)

        runs = self._store.list(agent_id=agent_id, evalset_id=evalset_id, limit=5)
        return next((run for run in runs if run.n_done and is_played(run)), None)

    def recent_trials(self, agent_id: str) -> Counts:
        """The verdicts of the newest RECENT_TRIALS trials that an agent played in its newest RECENT_RUNS runs."""
        counts = Counts()
        for run in self._store.list(agent_id=agent_id, limit=RECENT_RUNS):
            n_missing = RECENT_TRIALS - counts.done
            if n_missing and run.config.source_run_id is None and not is_imported(run.config):
                counts += (
                    run.counts if run.n_done <= n_missing else _count_newest(self._store, run.id, n_missing, run.counts)
                )
        return counts

    def numbers(self, run: RunSummary) -> RunNumbers:
        """The numbers of one run, by which its gates are answered."""
        every_case, endings = self.case_numbers(run), (Ending.of(run),)
        left_out = frozenset(run.config.left_out)
        counting = [case for case in every_case if case.key.case_id not in left_out]
        numbers = RunNumbers.of_cases(counting, endings=endings, costs=Spent.of(run))
        authors = run.config.tag_authors
        others = tuple(
            replace(case, tag_author=authors.get(case.key.case_id))
            for case in every_case
            if case.key.case_id in left_out
        )
        return replace(numbers, equal_kinds=self._equal_kinds(run), left_out=others)

    def case_numbers(self, run: RunSummary) -> tuple[CaseNumbers, ...]:
        """Every case of a run, also those that no gate asks for, in order."""
        outcomes, partly, name = (
            self._store.case_outcomes(run.id),
            self._find_partly_asserted(run),
            run.config.evalset_name,
        )
        keys = numbered_keys((name, each.case_id, each.digest) for each in outcomes)
        failures = self._store.pooled_failures(run.id) if run.config.gates.is_pooled else {}
        cases = [
            CaseNumbers(
                id=each.case_id,
                counts=replace(each.counts, not_applicable=each.counts.planned if each.case_id in partly else 0),
                pass_threshold=run.config.pass_threshold,
                key=key,
                pooled_failure=failures.get(each.case_index),
            )
            for each, key in zip(outcomes, keys, strict=True)
        ]
        return _with_names(cases, keys)

    def _totals(self, run: RunSummary, outcomes: Sequence[CaseCounts] | None = None) -> RunNumbers:
        """The numbers of one run whose cases are not named; `outcomes` where they are known."""
        if run.config.left_out or run.config.gates.is_pooled:
            return self.numbers(run)
        rows, gates = self.outcomes(run.id) if outcomes is None else outcomes, run.config.gates
        equal = self._equal_kinds(run) if run.is_uneven or gates.pass_at or gates.pass_hat else None
        return RunNumbers(run.counts, tuple(rows), (), Spent.of(run), (Ending.of(run),), self._kinds(run), equal)

    def _kinds(self, run: RunSummary) -> Kinds:
        """The cases by how their trials ended; none where no trial lacks a verdict."""
        if run.counts.scored == run.counts.planned:
            return ()
        if not run.is_uneven:
            return tuple(self._store.ended_counts(run.id))
        return self._kinds_of_strips(run)

    def _kinds_of_strips(self, run: RunSummary, n: int | None = None) -> Kinds:
        """The cases by how their trials ended, or the first `n` of each."""
        words = {verdict[0]: verdict for verdict in VERDICTS}
        strips = self._store.strips(run.id)
        if run.config.left_out:
            strips = [strips[place] for place in self.gate_places(run)]
        n_by_strip = Counter(strip[:n] for strip in strips)
        verdicts = (((words.get(letter, "") for letter in strip), times) for strip, times in n_by_strip.items())
        are_failures = run.config.errors_are_failures
        return tuple((Counts.of_verdicts(each, errors_are_failures=are_failures), times) for each, times in verdicts)

    def gate_places(self, run: RunSummary) -> Sequence[int]:
        """The indexes of the cases of a run that its gates ask for."""
        if not run.config.left_out:
            return range(run.n_cases)
        left_out = frozenset(run.config.left_out)
        return [index for index, case_id in self._store.case_ids(run.id).items() if case_id not in left_out]

    def n_played(self, run_id: int) -> list[int]:
        """The number of trials of each case of a run that were played, in the order of its cases."""
        return [len(strip) for strip in self._store.strips(run_id)]

    def interval(self, run: RunSummary, outcomes: Sequence[CaseCounts] | None = None) -> Interval | None:
        """The interval of the pass rate of a run; `outcomes` where they are known."""
        return self._totals(run, outcomes).interval

    def equal_counts(self, run: RunSummary) -> tuple[CaseCounts, ...] | None:
        """The cases by scored and passed trials among those that each of them has.

        None where these are all trials: for a run that was not stopped, and whose cases have as many each.
        """
        kinds = self._equal_kinds(run)
        return None if kinds is None else case_counts(kinds)

    def _equal_kinds(self, run: RunSummary) -> Kinds | None:
        if run.stop is None and not run.is_uneven:
            return None
        return self._kinds_of_strips(run, run.n_equal)

    def _find_partly_asserted(self, run: RunSummary, cases: Sequence[Case] | None = None) -> frozenset[str]:
        """The ids of the cases, by default of all, to which at least one metric does not apply."""
        config = run.config
        if not config.n_partly_asserted:
            return frozenset()
        run_cases = self._store.cases(run.id) if cases is None else cases
        return foresee(run_cases, config.criteria, strict=config.is_strict).partly_asserted

    def is_left_alone(self, run: RunSummary) -> bool:
        """Whether the process that played a running run is gone, as after a kill."""
        return run.status == "running" and not is_held(self._store, run)

    def shown_status(self, run: RunSummary) -> RunStatus | Literal["interrupted"]:
        """The status of a run as it is shown: `interrupted` where the process that played it is gone."""
        return "interrupted" if self.is_left_alone(run) else run.status

    def conclusion(self, run: RunSummary, outcomes: Sequence[CaseCounts] | None = None) -> Conclusion:
        """The conclusion of a run, by the gates it was started with; cases are read only where a gate names some."""
        gates, change = run.config.gates, self.change(run)
        conclusion = conclude(gates, self._totals(run, outcomes), change)
        is_naming = any(each.name in OF_EACH_CASE and not each.is_held for each in conclusion.gates)
        return conclude(gates, self.numbers(run), change) if is_naming else conclusion

    def outcome(self, run: RunSummary) -> Outcome | None:
        """The conclusion of a run, in one word; None while it goes on."""
        return None if run.status in LIVE else self.conclusion(run).outcome

    def change(self, run: RunSummary) -> RunChange | None:
        """The change of a run against the baseline it was started with; None without one."""
        if not run.config.gates.compares:
            return None
        return _change(self._store, run.id, run.counts, run.finished_at)

    def change_since(self, baseline: Baseline, runs: Sequence[RunSummary], gates: Gates) -> RunChange:
        """The change of the runs of one command against a baseline, by the rule of their gates."""
        names = set_names([run.config for run in runs])
        return changed_since(
            baseline,
            self.played_cases(runs),
            gates,
            bars={name: bars_of(run.config.criteria) for name, run in zip(names, runs, strict=True)},
            applies=partial(is_asserted, lambda: [case for run in runs for case in self._store.cases(run.id)]),
            is_replayed=any(repeats_recorded(run.config) for run in runs),
            refusal=next(filter(None, (refusal_of(run.config, gates) for run in runs)), ""),
        )

    def of_command(self, run: RunSummary) -> list[RunSummary]:
        """The runs of the command that began this one, in their order; those that were not begun are missing.

        Raises NotFoundError where one is gone.
        """
        part = run.config.command
        if part is None:
            return [run]
        parts = [
            (each, each.config.command.earlier)
            for each in self._store.list(limit=_MOST_LATER)
            if each.config.command and run.id in each.config.command.earlier
        ]
        last, earlier = max(parts, key=lambda each: len(each[1]), default=(run, part.earlier))
        return [*(run if number == run.id else self.summary(number) for number in earlier), last]

    def change_of_command(self, runs: Sequence[RunSummary]) -> RunChange | None:
        """The change of the runs of one command against the baseline that each has its part of; None without one."""
        gates = runs[0].config.gates
        if len(runs) == 1 or not gates.compares:
            return self.change(runs[0])
        baseline = joined_baseline([(run.config, self._store.baseline(run.id), self.case_ids(run.id)) for run in runs])
        return self.change_since(baseline, runs, gates) if baseline else None

    def baseline(self, name: str) -> Baseline:
        """The cases of an earlier run, by its number or its JSON file. Raises UsageError for another content."""
        if baseline := read_baseline_file(name):
            return baseline
        try:
            return self.baseline_of(int(name))
        except NotFoundError as error:
            raise NotFoundError(f"--baseline {name}: {error}") from error

    def baseline_of(self, run_id: int) -> Baseline:
        """The cases of an earlier run, with the history by which a run that begins now is judged."""
        run = self.summary(run_id)
        bars = {run.config.evalset_name: bars_of(run.config.criteria)}
        cases, days = self.with_history(run, self.played_cases([run]))
        return Baseline(f"run {run_id}", cases, run_id, bars, days)

    def plays_only_part(self, run_id: int) -> bool:
        """Whether a run plays only chosen cases of the set that its stored baseline was compared with."""
        baseline = self._store.baseline(run_id)
        return baseline is not None and baseline.is_of_part

    def with_history(self, run: RunSummary, cases: Sequence[PlayedCase]) -> tuple[tuple[PlayedCase, ...], RunDays]:
        """The cases of a run, each with its history, and how far the runs of that differ from day to day."""
        history = self.history(run)
        with_own = (replace(case, history=each) for case, each in zip(cases, history.cases, strict=True))
        return tuple(with_own), RunDays(history.n_runs, day_shifts(history.runs).weights)

    def gate_history(self, run: RunSummary) -> tuple[SetHistory, tuple[int, ...]]:
        """The history of the cases that the gates of a run ask for, and the trials that each had in it."""
        places, n_each = self.gate_places(run), self.n_played(run.id)
        return self.history(run).of(tuple(places)), tuple(n_each[place] for place in places)

    def history(self, run: RunSummary, keys: Sequence[CaseKey] | None = None) -> SetHistory:
        """The history of cases, by default of those of the run, over all runs of the same class.

        Of a run that has no class, such as an imported one, only its own trials.
        """
        of_class = history_class(run.config)
        if of_class != NO_HISTORY:
            return self._store.case_histories(of_class, self._store.case_keys(run.id) if keys is None else keys)
        cases = self.played_cases([run])
        letters = {(case.key.case_id, case.key.digest): case.scored_letters for case in cases}
        wanted_keys = [case.key for case in cases] if keys is None else keys
        of_keys = [letters.get((key.case_id, key.digest), "") for key in wanted_keys]
        return SetHistory(tuple(CaseHistory(len(each), each.count("p")) for each in of_keys))

    def played_cases(self, runs: Sequence[RunSummary]) -> tuple[PlayedCase, ...]:
        """The cases of runs that belong together, as they are compared with those of a baseline."""
        names = set_names([run.config for run in runs])
        cases = [
            case for name, run in zip(names, runs, strict=True) for case in _played_cases_of(self._store, run, name)
        ]
        keys = _renumber_keys([case.key for case in cases])
        return tuple(replace(case, key=key) for case, key in zip(cases, keys, strict=True))

    def metric_changes(self, before: RunSummary, after: RunSummary) -> dict[str, Comparison | None]:
        """For each metric the scores of two runs of the same cases, paired by case."""
        before_means, after_means = ({row.case_id: row.means for row in self.rows(run.id)} for run in (before, after))
        names = [criterion.metric for criterion in after.config.criteria]
        return {name: compare_scores(_means(before_means, name), _means(after_means, name)) for name in names}

    def result(self, run_id: int) -> RunResult:
        """The whole run with every transcript."""
        run = self.summary(run_id)
        cases, change = tuple(self.cases(run_id)), self.change(run)
        return RunResult(run_id, run.config, cases, run.status, run.reason, change, run.stop)

    def cases(self, run_id: int, *, is_whole: bool = True) -> Iterator[CaseResult]:
        """The cases of a run in the order of the file, each with its trials; see `RunStore.trial` for `is_whole`."""
        run = self.summary(run_id)
        config, rows = run.config, self.rows(run_id)
        while page := list(islice(rows, max(1, TRIALS_AT_ONCE // run.n_most))):
            cases = self._store.some_cases(run_id, [row.case_index for row in page])
            partly = self._find_partly_asserted(run, list(cases.values()))
            trial_keys = [key for row in page for key in _played_keys(row)]
            trials = self._store.trials(run_id, trial_keys, is_whole=is_whole)
            for row in page:
                yield CaseResult(
                    case=cases[row.case_index],
                    trials=tuple(trials[key] for key in _played_keys(row)),
                    n_planned=len(row.verdicts),
                    errors_are_failures=config.errors_are_failures,
                    is_partly_asserted=cases[row.case_index].id in partly,
                )

    def rows(self, run_id: int) -> Iterator[CaseRow]:
        """The line of every case, in the order of the file."""
        rows, after = None, ""
        while rows is None or len(rows) == ROWS_AT_ONCE:  # a page that is not full is the last
            rows = self._store.case_rows(run_id, sort="file", after=after, limit=ROWS_AT_ONCE)
            yield from rows
            after = rows[-1].cursor if rows else ""

    def case_ids(self, run_id: int) -> list[str]:
        """The ids of the cases of a run, in the order of the file."""
        return list(self._store.case_ids(run_id).values())

    def case(self, run_id: int, row: CaseRow, trial_index: int) -> CaseResult:
        """A case of a run with one of its trials."""
        trial = self._store.trial(run_id, row.case_index, trial_index, is_whole=True)
        return CaseResult(self._store.case(run_id, row.case_index), (trial,), n_planned=len(row.verdicts))

    def by_other_tools(self, run: RunSummary, spelled: str = "") -> ByOtherTools:
        """The verdicts of other tools on the trials of the run that differ from those of the run."""
        config = run.config
        verdicts: list[OtherVerdict] = []
        n_scores: Counter[str] = Counter()
        sentences = {tool: unscored_by(tool, config) for tool in tools_beside(config, spelled)}
        tools = [tool for tool, unscored in sentences.items() if not unscored]  # of the others no trial is read
        for tool, row, case, trials in self._cases_of_tools(run, tools):
            reasons = Counter(difference(tool, case, trial, config.criteria) for trial in trials)
            differences = ((text, n) for text, n in reasons.items() if text)
            verdicts += (OtherVerdict(tool, row.case_id, text, n, len(row.verdicts)) for text, n in differences)
            if not any(reasons):
                n_scores[tool] += any(has_other_scores(tool, case, trial, config.criteria) for trial in trials)
        unscored = tuple(filter(None, sentences.values()))
        return ByOtherTools(tuple(verdicts), {tool: n for tool, n in n_scores.items() if n}, unscored)

    def _cases_of_tools(
        self, run: RunSummary, tools: Sequence[str]
    ) -> Iterator[tuple[str, CaseRow, Case, list[TrialResult]]]:
        """Each tool with each case that it may judge otherwise and the trials of that, in the order of the file."""
        rows = self.rows(run.id) if tools else iter(())
        while page := list(islice(rows, max(1, TRIALS_AT_ONCE // run.n_most))):
            cases = self._store.some_cases(run.id, [row.case_index for row in page])
            tools_of_rows: list[tuple[CaseRow, list[str]]] = []
            for row in page:
                case = cases[row.case_index]
                tools_of_rows.append(
                    (row, [tool for tool in tools if may_differ(tool, run.config, case, row.verdicts)])
                )
            trial_keys = [key for row, of in tools_of_rows if of for key in _played_keys(row)]
            trials = self._store.trials(run.id, trial_keys)
            for row, of in tools_of_rows:
                own = [trials[key] for key in _played_keys(row)] if of else []
                yield from ((tool, row, cases[row.case_index], own) for tool in of)

    def agent_totals(self, run_id: int) -> list[AgentTotals]:
        """The agents of the trials in which several acted, in the order of their tree."""
        return self._store.agent_totals(run_id)

    def captures(self, run: RunSummary) -> tuple[Capture, ...]:
        """The ways by which calls became known in the first trials of the run; it has the same agent in all of them."""
        rows = self._store.case_rows(run.id, sort="file", limit=CAPTURED_CASES)
        firsts = [keys[0] for row in rows if (keys := _played_keys(row))]
        ways = {way for trial in self._store.trials(run.id, firsts).values() for way in trial.transcript.captures}
        return tuple(way for way in get_args(Capture) if way in ways)


def _played_keys(row: CaseRow) -> list[TrialKey]:
    return [(row.case_index, index) for index, mark in enumerate(row.verdicts) if mark != NOT_PLAYED]


def _unknown_run(name: str, known_names: Sequence[str]) -> NotFoundError:
    message = str(NotFoundError.among("run", name, known_names)) if known_names else f"no run named {name!r}"
    return NotFoundError(f"{message}{'' if message.endswith('?') else '; `evaldesk run list` shows them'}")


def _means(rows: dict[str, Mapping[str, float]], metric: str) -> dict[str, float]:
    return {case_id: means[metric] for case_id, means in rows.items() if metric in means}


@lru_cache(maxsize=64)
def _count_newest(store: RunStore, run_id: int, limit: int, _: Counts) -> Counts:
    """The verdicts of the newest trials of a run; kept as long as the counts of the run stay the same."""
    return store.newest_counts(run_id, limit)


@lru_cache(maxsize=256)
def _change(store: RunStore, run_id: int, _: Counts, finished_at: datetime | None) -> RunChange | None:
    """The comparison with the baseline; kept as long as the counts of the run and its end stay the same.

    Trials that confirm a regression are in no count: of a run that goes on they are seen at its end.
    """
    baseline = store.baseline(run_id)
    if baseline is None:
        return None
    run = store.summary(run_id)
    return StoredRuns(store).change_since(baseline, [run], run.config.gates)


def is_held(store: RunStore, summary: RunSummary) -> bool:
    """Whether a process plays the run, or is to: one that lives here, or whose lease has not run out."""
    is_asked = summary.leased_until is not None and not is_here(summary.driver)
    return is_at_work(summary.driver, is_leased=store.is_leased(summary.id) if is_asked else None)


def plan_confirming(store: RunStore, run_id: int, gates: Gates, lease: int | None = None) -> None:
    """Plan the fresh trials that the rule "confirm" asks for after the planned ones; none without a baseline."""
    baseline = store.baseline(run_id)
    if baseline is None:
        return
    change = StoredRuns(store).change_since(baseline, [store.summary(run_id)], gates)
    suspects = {case.key.case_id for case in change.unconfirmed_cases}
    if suspects:
        store.plan_confirming(run_id, suspects, gates.confirm[1], lease=lease)


def changed_since(
    baseline: Baseline,
    cases: Sequence[PlayedCase],
    gates: Gates,
    *,
    bars: Mapping[str, Sequence[Bar]],
    applies: Callable[[str], bool],
    is_replayed: bool,
    refusal: str,
) -> RunChange:
    """The change of `cases` against a baseline, by the rule of the gates; a case in quarantine is on neither side.

    `bars` are those of the criteria by eval set, and `applies` says of a metric whether a case asserts what it judges.
    """
    left_out = {case.key.place[:2] for case in cases if case.is_left_out}
    # A case that no gate asked for in the baseline is new to the gates once it is asked for.
    earlier = [case for case in baseline.cases if not case.is_left_out and case.key.place[:2] not in left_out]
    change = compare_cases(
        baseline.name,
        earlier,
        [case for case in cases if not case.is_left_out],
        rule=gates.regression_rule,
        confirm=gates.confirm,
        days=baseline.days,
        max_regressions=gates.max_regressions or 0,
        is_replayed=is_replayed,
    )
    weaker = weaker_words(change, baseline, bars, applies)
    return replace(change, refusal=refusal, weaker=weaker, is_of_part=baseline.is_of_part)


def refusal_of(config: RunConfig, gates: Gates) -> str:
    """Why the rule on regressions has no trials of the run to judge by; empty where it has."""
    if gates.regression_rule == "any":
        return ""
    return without_fresh_trials(config) if gates.regression_rule == "confirm" else without_evidence(config)


def planned_numbers(plan: RunPlan) -> RunNumbers:
    """The numbers of a run that was not begun."""
    name = plan.config.evalset_name
    left_out = frozenset(plan.config.left_out)
    numbers = RunNumbers.of_cases(
        CaseNumbers(case.id, Counts(n), key=CaseKey(name, case.id))
        for case, n in zip(plan.cases, plan.n_each, strict=True)
        if case.id not in left_out
    )
    n = plan.config.n_partly_planned or plan.config.n_partly_asserted * plan.config.n
    return replace(numbers, counts=replace(numbers.counts, not_applicable=n))


def compared_plans(plans: Sequence[RunPlan], baseline: Baseline) -> list[RunPlan]:
    """The plans of one command, each with the baseline without the cases that belong to another of them.

    A shard has the whole baseline, which is one for all shards.
    """
    if any(plan.config.shard for plan in plans):
        return [replace(plan, baseline=replace(baseline, is_of_part=plan.is_of_part)) for plan in plans]
    names = set_names([plan.config for plan in plans])
    planned_cases = [(name, case) for name, plan in zip(names, plans, strict=True) for case in plan.cases]
    n_named = Counter((name, case.id) for name, case in planned_cases)
    n_named.update(case.key.place[:2] for case in baseline.cases)
    evalset_names = {case.key.evalset for case in baseline.cases}
    # Content is read only where a name alone does not tell which case is which.
    digests = (
        case_version(case) if n_named[name, case.id] > 2 or name not in evalset_names else ""
        for name, case in planned_cases
    )
    keys = numbered_keys((name, case.id, digest) for (name, case), digest in zip(planned_cases, digests, strict=True))
    before = match_cases(baseline.cases, keys)
    own = {key.place: before.pop(key.place, None) for key in keys}
    deleted_cases = [replace(case, key=replace(case.key, ordinal=place[2])) for place, case in before.items()]
    result, own_cases = [], iter(own.values())
    for plan in plans:
        cases = [case for case in islice(own_cases, len(plan.cases)) if case]
        name = plan.config.evalset_name
        cases = [replace(case, key=replace(case.key, evalset=name, ordinal=0)) for case in cases]
        own_baseline = replace(baseline, cases=(*cases, *deleted_cases), is_of_part=plan.is_of_part)
        result.append(replace(plan, baseline=own_baseline))
    return result


def joined_baseline(parts: Sequence[tuple[RunConfig, Baseline | None, Sequence[str]]]) -> Baseline | None:
    """The baseline of one command from the parts of its runs, each with the ids of its cases; None without any."""
    names = set_names([config for config, _, _ in parts])
    own: list[PlayedCase] = []
    others: dict[CaseKey, PlayedCase] = {}
    baselines: list[Baseline] = []
    for name, (config, baseline, case_ids) in zip(names, parts, strict=True):
        if baseline is None:
            continue
        baselines.append(baseline)
        ids = set(case_ids)
        for case in baseline.cases:
            if case.key.evalset == config.evalset_name and case.key.case_id in ids:
                own.append(replace(case, key=replace(case.key, evalset=name)))
            else:
                others[case.key] = case
    if not baselines:
        return None
    of_part = any(baseline.is_of_part for baseline in baselines)
    return replace(baselines[0], cases=(*own, *others.values()), is_of_part=of_part)


def joined_numbers(runs: Sequence[RunNumbers]) -> RunNumbers:
    """Several runs as one; a case id that occurs again is named with its eval set, so that no case hides another."""
    left_out = {id(case) for run in runs for case in run.left_out}
    cases = [case for run in runs for case in (*run.cases, *run.left_out)]
    named_cases = list(zip(cases, named_together(cases), strict=True))
    numbers = RunNumbers.of_cases(
        [named_case for case, named_case in named_cases if id(case) not in left_out],
        costs=sum((run.costs for run in runs), Spent()),
        endings=[ending for run in runs for ending in run.endings],
    )
    equal = runs[0].equal_kinds if len(runs) == 1 else None
    others = tuple(named_case for case, named_case in named_cases if id(case) in left_out)
    return replace(numbers, counts=Counts.total(run.counts for run in runs), equal_kinds=equal, left_out=others)


def named_together(cases: Sequence[CaseNumbers]) -> tuple[CaseNumbers, ...]:
    """The cases of the runs of one command, each with a name that is unambiguous among them."""
    return _with_names(cases, _renumber_keys([case.key for case in cases]))


def set_names(configs: Sequence[RunConfig]) -> list[str]:
    """The name of each eval set of one command; files of one name have so much of their folders as tells them apart."""
    paths = {config.evalset_id: PurePath(config.evalset_path).parent.parts for config in configs}
    names = {config.evalset_id: config.evalset_name for config in configs}
    alike = Counter(names.values())
    for name in [each for each, n in alike.items() if n > 1]:
        ids = [evalset_id for evalset_id in names if names[evalset_id] == name]
        longest = max(len(paths[each]) for each in ids)
        n_parts = next((n for n in range(1, longest + 1) if len({paths[each][-n:] for each in ids}) == len(ids)), 0)
        names |= {each: "/".join((*paths[each][-n_parts:], name)) for each in ids if n_parts}
    return [names[config.evalset_id] for config in configs]


def _played_cases_of(store: RunStore, run: RunSummary, name: str) -> list[PlayedCase]:
    outcomes, snapshots = store.case_outcomes(run.id), store.cases(run.id)
    return [
        PlayedCase(
            key=CaseKey(name, each.case_id, 0, each.digest),
            verdicts=each.verdicts,
            pass_threshold=run.config.pass_threshold,
            errors_are_failures=run.config.errors_are_failures,
            asserted=assertions(case),
            confirming=each.confirming,
            is_left_out=each.case_id in run.config.left_out,
        )
        for each, case in zip(outcomes, snapshots, strict=True)
    ]


def _with_names(cases: Sequence[CaseNumbers], keys: Sequence[CaseKey]) -> tuple[CaseNumbers, ...]:
    names = case_names({key.place for key in keys})
    return tuple(replace(case, id=names[key.place], key=key) for case, key in zip(cases, keys, strict=True))


def _renumber_keys(keys: Sequence[CaseKey]) -> list[CaseKey]:
    """Keys of several runs: two files may give their eval sets the same id."""
    return numbered_keys((key.evalset, key.case_id, key.digest) for key in keys)


def metric_interval(row: MetricRow, run: RunSummary) -> Interval | None:
    """The interval of the mean, within the range of the metric; None without one, and of a run that was stopped.

    An interval of a mean that holds at any stop is not known, and this one would be narrower than that of the rate.
    """
    return None if run.stop is not None else interval_of(row, run.counts, run.n_cases)


def interval_of(row: MetricRow, counts: Counts, n_cases: int) -> Interval | None:
    """The interval of the mean of a run that was not stopped; None where cases have no trial."""
    if counts.unplayed > 0 and counts.planned == n_cases:
        return None
    low, high = metric_range(row)
    return score_interval(row, low, high)


def metric_range(row: MetricRow) -> tuple[float, float]:
    """The range of the metric; of the values seen when the metric is gone."""
    info = known_metric(row.metric)
    return (info.low, info.high) if info else (min(row.low, 0.0), max(row.high, 1.0))


@dataclass(frozen=True, slots=True)
class ByOtherTools:
    """Every verdict that another tool would not give, in either direction, by case and reason.

    `n_scores`: for each tool the cases to which it gives the same verdicts and other scores; without those of none.
    `unscored`: a sentence for each tool that scores no case of the run.
    """

    verdicts: tuple[OtherVerdict, ...]
    n_scores: Mapping[str, int]
    unscored: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """A sentence for each reason: with its one case, or with the number of its cases and the first of them."""
        by_reason: dict[str, list[OtherVerdict]] = {}
        for each in self.verdicts:
            by_reason.setdefault(each.sentence, []).append(each)
        return [_of_cases(sentence, verdicts) for sentence, verdicts in by_reason.items()]


@dataclass(frozen=True, slots=True)
class OtherVerdict:
    """A case that a tool judges otherwise than this run in `n` of `n_trials` trials, for one reason."""

    tool: str
    case_id: str
    sentence: str
    n: int
    n_trials: int


def _of_cases(sentence: str, verdicts: Sequence[OtherVerdict]) -> str:
    """`case_1 (2 of 5 trials): …` for one case, `12 cases (14 of 60 trials): … (case_1, case_2, …)` for several."""
    n_trials, names = sum(each.n_trials for each in verdicts), [each.case_id for each in verdicts]
    of = f" ({counted_words(sum(each.n for each in verdicts), n_trials, 'trial')})" if n_trials > len(verdicts) else ""
    if len(verdicts) == 1:
        return f"{names[0]}{of}: {sentence}"
    return f"{len(verdicts):,} cases{of}: {sentence} ({named_words(names)})"


def run_title(summary: RunSummary) -> str:
    """The name of a run: its number and its eval set."""
    return f"Run {summary.id}, {summary.config.evalset_name}"


def run_name(run: RunSummary) -> str:
    """The name of the run, else its number."""
    return own_name(run) or str(run.id)


def own_name(run: RunSummary) -> str:
    """The name of the run, else the first line of a person's note; empty without both."""
    if run.config.name or run.note == MARK:
        return run.config.name or ""
    lines = run.note.strip().splitlines()
    return lines[0][:MAX_RUN_NAME] if lines else ""
