"""Runs and their trials, played here or recorded elsewhere: each method is one transaction."""

from __future__ import annotations

import builtins
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, func, or_, select, update
from sqlalchemy.exc import OperationalError, StatementError

from evaldesk.errors import TEXT_LIMIT, ConflictError, NotFoundError, WorkspaceError
from evaldesk.model import AgentRef, Case, RunConfig, RunStatus, TrialResult, TurnRecord
from evaldesk.model.comparison import Baseline
from evaldesk.model.conclusion import Stop, StopRule
from evaldesk.model.stored import RunSummary
from evaldesk.model.trial_turns import TrialTurns
from evaldesk.store import pinned_turns
from evaldesk.store.database import StepSize, StorePart, reading, writing
from evaldesk.store.runs import (
    case_table,
    histories,
    planning,
    run_queries,
    set_outcomes,
    shared_states,
    trash,
    trends,
)
from evaldesk.store.runs.facets import add_some_facets
from evaldesk.store.runs.histories import IMPORTED
from evaldesk.store.runs.planning import Planning
from evaldesk.store.runs.recording import KIND, Storable, record, storable_rows, unstorable
from evaldesk.store.runs.recounting import add_totals
from evaldesk.store.tables.runs import LISTED, RUN, RUN_CASE, RUN_SOURCE, VISIBLE

if TYPE_CHECKING:
    from evaldesk.diff.divergence import Divergence

log = logging.getLogger("evaldesk.store")

TRIALS_DELETED_AT_ONCE = 100
"""Trials that one transaction removes, of one case or of several; fewer where the last ones took long."""

CASES_NAMED_AT_ONCE = 1_000
"""Cases of a deleted run that one transaction gives the run before it."""

RUNS_READ_AT_ONCE = 100

# Deleted rows stay until then: decision 066.
DELETED_RUNS_KEPT = timedelta(days=30)
"""How long a deleted run stays in the trash; the start of a desk removes it after that."""


class RunStore(StorePart):
    """Runs, their cases and their trials. Methods that name a run raise NotFoundError when there is no such run."""

    pending = reading(planning.pending)
    n_unplanned = reading(planning.n_unplanned)
    cut_to_planned = writing(planning.cut_to_planned)
    renew = writing(planning.renew)
    _begin_retry = writing(planning.begin_retry)
    _retry_some = writing(planning.retry_some)
    _add_some_totals = writing(add_totals)
    _add_some_facets = writing(add_some_facets)
    _hidden_last_runs = reading(trash.hidden_last_runs)
    _runs_before = reading(trash.runs_before)
    is_leased = reading(planning.is_leased)
    known_loop_bound = writing(shared_states.known_loop_bound)
    counts_by_status = reading(run_queries.counts_by_status)
    agents = reading(run_queries.agents)
    evalsets = reading(run_queries.evalsets)
    models = reading(run_queries.models)
    metric_rows = reading(run_queries.metric_rows)
    case_totals = reading(run_queries.case_totals)
    error_groups = reading(run_queries.error_groups)
    has_agent_totals = reading(run_queries.has_agent_totals)
    agent_totals = reading(run_queries.agent_totals)
    trials = reading(run_queries.trials)
    prompts = reading(run_queries.prompts)
    last_verdicts = reading(run_queries.last_verdicts)
    last_run = reading(run_queries.last_run)
    baseline = reading(run_queries.baseline)
    case = reading(run_queries.snapshot)
    cases = reading(run_queries.snapshots)
    some_cases = reading(run_queries.some_snapshots)
    case_rows = reading(run_queries.case_rows)
    case_row = reading(run_queries.case_row)
    case_ids = reading(run_queries.case_ids)
    table_part = reading(case_table.table_part)
    ranks_by_spread = reading(case_table.ranks_by_spread)
    are_alike = reading(case_table.are_alike)
    first_divergences = reading(case_table.first_divergences)
    divergence_words = reading(case_table.divergence_words)
    facet_counts = reading(case_table.facet_counts)
    divergence_counts = reading(case_table.divergence_counts)
    time_quantiles = reading(case_table.time_quantiles)
    cases_named = reading(run_queries.cases_named)
    find_case = reading(run_queries.find_case)
    case_counts = reading(run_queries.case_counts)
    case_outcomes = reading(run_queries.case_outcomes)
    pooled_failures = reading(run_queries.pooled_failures)
    metric_samples = reading(run_queries.metric_samples)
    trial_samples = reading(run_queries.trial_samples)
    case_versions = reading(run_queries.case_versions)
    strips = reading(run_queries.strips)
    outcome_counts = reading(run_queries.outcome_counts)
    ended_counts = reading(run_queries.ended_counts)
    median_ms = reading(run_queries.median_ms)
    newest_counts = reading(run_queries.newest_counts)
    score_counts = reading(run_queries.score_counts)
    neighbours = reading(run_queries.neighbours)
    case_histories = reading(histories.case_histories)
    case_keys = reading(histories.case_keys)
    trend_runs = reading(trends.trend_runs)
    trend_cases = reading(trends.trend_cases)
    trend_metrics = reading(trends.trend_metrics)
    trend_medians = reading(trends.trend_medians)
    set_runs = reading(set_outcomes.set_runs)
    quarantine_runs = reading(set_outcomes.quarantine_runs)

    def create(
        self,
        config: RunConfig,
        cases: Sequence[Case],
        driver: str = "",
        baseline: Baseline | None = None,
        n_each: Sequence[int] = (),
        prefix: Sequence[TurnRecord] = (),
    ) -> int:
        """Plan every trial of a new run, as `planning` does step by step, and return its id."""
        plan = self.planning(config, cases, driver, baseline, n_each, prefix)
        while not plan.is_done:
            plan.step()
        return plan.run_id

    def planning(
        self,
        config: RunConfig,
        cases: Sequence[Case],
        driver: str = "",
        baseline: Baseline | None = None,
        n_each: Sequence[int] = (),
        prefix: Sequence[TurnRecord] = (),
    ) -> Planning:
        """The planning of a new run, in steps that let others write; nothing is stored before the first.

        `driver` is the owner that will play it, with lease 1, `baseline` the earlier run that the gates compare with,
        `n_each` the trials of each case where they differ, `prefix` the pinned turns of a fork.
        Raises UsageError without cases, or for n below 1.
        """
        return Planning(self._database, self._clock, config, cases, driver, baseline, n_each, self._starter, prefix)

    def record(self, results: Sequence[TrialResult], *, lease: int | None = None) -> int:
        """Make results durable in one transaction and return the number that counted.

        A result for a trial that has one already does not count; a cancelled trial counts and stays to do. One that
        the database cannot hold is stored as errored and says why; the others are stored as they are. `lease` is that
        of the process that played them, all of one run: when another process took the run since, ConflictError is
        raised and nothing is stored.
        """
        stored_results = map(pinned_turns.with_stubs, results)
        rows = storable_rows(stored_results, self._first_divergence, self._divergence_words)
        return self._record(rows, lease) if results else 0

    def _first_divergence(self, result: TrialResult) -> Divergence | None:
        """That of a result that is not stored yet, by its stored case, also in a run that is hidden."""
        from evaldesk.store.runs.long_trials import stored_divergence

        config, codec, data = self._compared_with(result.run_id, result.case_index)
        return stored_divergence(codec, data, self._with_pinned(result), config)

    def _divergence_words(self, result: TrialResult) -> str | None:
        """The first divergence of a failed result in words; None where its case is gone."""
        from evaldesk.store.runs.facets import divergence_words

        with suppress(NotFoundError):
            config, codec, data = self._compared_with(result.run_id, result.case_index)
            return divergence_words(codec, data, self._with_pinned(result), config)
        return None

    def _with_pinned(self, result: TrialResult) -> TrialResult:
        if not result.n_prefix_turns:
            return result
        with self._database.reading() as connection:
            return pinned_turns.with_pinned(connection, result.run_id, [result])[0]

    _compared_with = reading(run_queries.compared_with)

    def turns(self, run_id: int, case_index: int, trial_index: int) -> tuple[TrialTurns, Divergence | None]:
        """A trial of which some turns are read, and its first divergence. Raises NotFoundError as `case`.

        Results of tools have the digests of their images.
        """
        from evaldesk.store.runs.long_trials import StoredTurns

        config = self.summary(run_id).config
        readers = partial(self.case, run_id, case_index), partial(self.trial, run_id, case_index, trial_index)
        return StoredTurns(self._database.reading, run_id, (case_index, trial_index), *readers).turns(config)

    def _record(self, rows: Sequence[Storable], lease: int | None) -> int:
        try:
            with self._database.writing() as connection:
                if lease is not None:
                    planning.check_lease(connection, rows[0].result.run_id, lease)
                visible_rows = planning.without_deleted(connection, rows)
                return record(connection, visible_rows, self._clock) if visible_rows else 0
        except OperationalError:
            raise
        except (StatementError, OverflowError, ValueError, TypeError) as error:
            if len(rows) > 1:
                return sum(self._record([row], lease) for row in rows)
            result = rows[0].result
            if result.error and result.error.kind == KIND:
                raise
            cause = getattr(error, "orig", None) or error  # without the statement and what was to be written by it
            log.warning("run %s, case %s: a result cannot be stored: %s", result.run_id, result.case_index, cause)
            return self._record([unstorable(result, f"{type(cause).__name__}: {str(cause)[:TEXT_LIMIT]}")], lease)

    def set_pooled_failures(self, run_id: int, failures: Mapping[int, str], *, lease: int | None = None) -> None:
        """Store why the trials of cases together fail, empty where they pass, by the index of the case.

        Raises ConflictError where another process has taken the run since `lease`, NotFoundError for a deleted run.
        """
        columns = RUN_CASE.c
        with self._database.writing() as connection:
            run_queries.run_row(connection, run_id)
            if lease is not None:
                planning.check_lease(connection, run_id, lease)
            for index, failure in failures.items():
                at_case = (columns.run_id == run_id, columns.case_index == index)
                connection.execute(update(RUN_CASE).where(*at_case).values(pooled_failure=failure))

    def set_status(self, run_id: int, status: RunStatus, reason: str = "", *, driver: str | None = None) -> None:
        """Move a run on; `driver` names the process that plays it, None leaves the name as it is."""
        with self._database.writing() as connection:
            planning.set_status(connection, run_id, status, reason, driver, self._clock)

    def end(self, run_id: int, status: RunStatus, reason: str = "", *, lease: int, stop: Stop | None = None) -> bool:
        """As `set_status`, for the process with that lease; False, and nothing written, where another took the run.

        `stop` says why it ends before its last trial, where its gates are decided.
        """
        with self._database.writing() as connection:
            if run_queries.run_row(connection, run_id).lease != lease:
                return False
            planning.set_status(connection, run_id, status, reason, None, self._clock)
            if stop:
                planning.set_stop(connection, run_id, stop)
        return True

    def move_on(self, seen_run: RunSummary, status: RunStatus, reason: str = "", *, driver: str | None = None) -> bool:
        """As `set_status`, for a run that has still the status, the driver and the lease of `seen_run`.

        False, and nothing is written, when another process was quicker: of several that take up a run one gets it, and
        a run that ended meanwhile is not asked to stop. A new `driver` gets the lease after the one that was
        `seen_run`, and nothing when that was renewed since.
        """
        with self._database.writing() as connection:
            if not is_unchanged_since(connection, seen_run, is_taken=driver is not None):
                return False
            planning.set_status(connection, seen_run.id, status, reason, driver, self._clock)
            return True

    def set_note(self, run_id: int, note: str, *, seen_note: str | None = None) -> None:
        """Change a person's note on a run; ConflictError is raised where it differs from `seen_note`."""
        with self._database.writing() as connection:
            now = run_queries.run_row(connection, run_id).note
            if seen_note is not None and now not in (seen_note, note):
                raise ConflictError(f"the note of run {run_id} was changed meanwhile; look at it, then change it again")
            connection.execute(update(RUN).where(RUN.c.id == run_id).values(note=note))

    def set_stop_rule(self, run_id: int, rule: StopRule | None) -> bool:
        """Let a run stop once its gates are decided, or play every trial; False for an ended run."""
        with self._database.writing() as connection:
            run_queries.run_row(connection, run_id)
            going = (RUN.c.id == run_id) & RUN.c.status.not_in(planning.ENDED)
            return connection.execute(update(RUN).where(going).values(stop_rule=rule or "")).rowcount == 1

    def plan_confirming(self, run_id: int, case_ids: Collection[str], n: int, *, lease: int | None = None) -> None:
        """Plan `n` fresh trials of these cases, in steps that let others write; they are in no count of the run.

        A case gets them once. Raises ConflictError for a `lease` that another process has replaced.
        """
        with self._database.reading() as connection:
            cases = planning.without_fresh(connection, run_id, case_ids)
        size = StepSize(max(planning.ROWS_AT_ONCE // n, 1))
        while cases:
            some, cases = cases[: size.n], cases[size.n :]
            with size.writing(self._database) as connection:
                if lease is not None:
                    planning.check_lease(connection, run_id, lease)
                planning.plan_confirming(connection, run_id, some, n)

    def retry_errored(self, run_id: int) -> int:
        """Plan the errored trials of a run again, in steps that let others write, and return their number."""
        self._begin_retry(run_id)
        case_index, n_some = self._retry_some(run_id, 0)
        n = n_some
        while n_some:
            case_index, n_some = self._retry_some(run_id, case_index)
            n += n_some
        self._add_totals(run_id)
        return n

    def add_totals(self) -> None:
        """Count the totals of runs of earlier versions, in steps that let others write."""
        with self._database.reading() as connection:
            lacking = select(RUN.c.id).where(VISIBLE, RUN.c.n_totalled < RUN.c.n_cases).order_by(RUN.c.id.desc())
            run_ids = connection.scalars(lacking).all()
        for run_id in run_ids:
            self._add_totals(run_id)

    def add_facets(self, *run_ids: int) -> None:
        """Store the facets of these runs of earlier versions, or of all, in steps that let others write."""
        lacking = select(RUN.c.id).where(VISIBLE, RUN.c.n_faceted < RUN.c.n_cases).order_by(RUN.c.id.desc())
        if run_ids:
            lacking = lacking.where(RUN.c.id.in_(run_ids))
        with self._database.reading() as connection:
            lacking_ids = connection.scalars(lacking).all()
        for run_id in lacking_ids:
            while self._add_some_facets(run_id):
                pass

    def _add_totals(self, run_id: int) -> None:
        while self._add_some_totals(run_id):
            pass

    def delete(self, *run_ids: int) -> None:
        """Move runs to the trash, all or none; no list has them. Raises ConflictError while one is going."""
        with self._database.writing() as connection:
            for run_id in run_ids:
                trash.hide(connection, run_id, self._clock())
        with suppress(WorkspaceError):  # they are deleted; the next removal goes on
            self._name_runs_before()

    def _name_runs_before(self) -> None:
        """Name the last visible run of cases whose last run is hidden, in steps; continues after a crash."""
        while run_ids := self._hidden_last_runs():
            for run_id in run_ids:
                orphans = self._runs_before(run_id)
                size = StepSize(CASES_NAMED_AT_ONCE)
                while orphans:
                    some, orphans = orphans[: size.n], orphans[size.n :]
                    with size.writing(self._database) as connection:
                        trash.name_runs_before(connection, run_id, some)

    def restore(self, *run_ids: int) -> None:
        """Bring runs back from the trash, all or none.

        Raises NotFoundError when one is not there, or its removal has begun.
        """
        with self._database.writing() as connection:
            for run_id in run_ids:
                trash.show_again(connection, run_id, self._clock)

    def deleted(self) -> builtins.list[tuple[RunSummary, datetime]]:
        """The runs in the trash with the times of their deletion, oldest run first."""
        with self._database.reading() as connection:
            rows = connection.execute(trash.in_trash().order_by(RUN.c.id)).all()
            return [(run_queries.summary(connection, row, self._clock), row.deleted_at) for row in rows]

    def in_trash(self, run_ids: Collection[int]) -> Sequence[int]:
        """Those of the runs that are in the trash, oldest run first."""
        with self._database.reading() as connection:
            rows = connection.execute(trash.in_trash().where(RUN.c.id.in_(run_ids)).order_by(RUN.c.id))
            return [row.id for row in rows]

    def sizes(self, run_ids: Sequence[int]) -> dict[int, int]:
        """The approximate size of each run's transcripts, runs in the trash included."""
        with self._database.reading() as connection:
            return {run_id: trash.n_bytes(connection, run_id) for run_id in run_ids}

    def remove_deleted(self, retention: timedelta = timedelta(0), *, until: datetime | None = None) -> None:
        """Remove for good the runs that were deleted up to `until`, or have been in the trash for `retention`.

        The remains of earlier removals go, too.
        """
        is_old = RUN.c.deleted_at <= (until or self._clock() - retention)
        with self._database.reading() as connection:
            old_runs = connection.scalars(trash.in_trash().with_only_columns(RUN.c.id).where(is_old)).all()
        self._remove(old_runs)
        self.finish_deleting()

    def finish_deleting(self) -> None:
        """Remove the remaining rows of removals that a crash cut short, and of imports that were never shown.

        The hidden runs of an import that goes on stay, and those in the trash.
        """
        self._name_runs_before()
        with self._database.reading() as connection:
            remains = trash.remains(connection)
        self._remove(remains)

    def _remove(self, run_ids: Sequence[int]) -> None:
        """Remove hidden runs in steps that let others write."""
        for run_id in run_ids:
            size, is_left = StepSize(TRIALS_DELETED_AT_ONCE), True
            while is_left:
                with size.writing(self._database) as connection:
                    is_left = trash.delete_some(connection, run_id, size.n)

    def summary(self, run_id: int) -> RunSummary:
        """A run and its totals."""
        with self._database.reading() as connection:
            return run_queries.summary(connection, run_queries.run_row(connection, run_id), self._clock)

    def summaries(self, run_ids: Sequence[int]) -> list[RunSummary]:
        """The runs of these that are there, in this order, with their totals."""
        with self._database.reading() as connection:
            query = select(RUN).where(RUN.c.id.in_(run_ids), VISIBLE)
            rows = {row.id: row for row in connection.execute(query)}
            return [run_queries.summary(connection, rows[run_id], self._clock) for run_id in run_ids if run_id in rows]

    def is_any_played_from(self, folder: str) -> bool:
        """Whether the agent of a run, also of a deleted one, is in this folder, whose path ends with `/`."""
        text = json.dumps(folder, ensure_ascii=False)[1:-1]
        runs = select(RUN.c.id).where(RUN.c.config.contains(text, autoescape=True)).limit(1)
        with self._database.reading() as connection:
            return connection.execute(runs).first() is not None

    def list(
        self,
        *,
        status: RunStatus | None = None,
        agent_id: str | None = None,
        evalset_id: str | None = None,
        model: str | None = None,
        text: str = "",
        is_part: bool = False,
        before: int | None = None,
        limit: int = 50,
        history_class: str | None = None,
        has_forks: bool = False,
    ) -> builtins.list[RunSummary]:
        """Runs, newest first, as `matching` finds them; `before` ends the last page. Forks are among them if asked."""
        conditions = run_queries.matching(status, agent_id, evalset_id, model, text, is_part=is_part)
        runs = select(RUN).where(VISIBLE if has_forks else LISTED, *conditions)
        if history_class is not None:
            runs = runs.where(RUN.c.history_class == history_class)
        if before is not None:
            runs = runs.where(RUN.c.id < before)
        return self._summaries(runs.order_by(RUN.c.id.desc()).limit(limit))

    def iterate_named(self, name: str) -> Iterator[RunSummary]:
        """The runs, newest first, whose configuration or note has these words: those of this name, and others."""
        text = json.dumps(name, ensure_ascii=False)
        has_name = or_(RUN.c.config.contains(text, autoescape=True), RUN.c.note.contains(name, autoescape=True))
        newest_first = RUN.c.id.desc()
        with self._database.reading() as connection:
            ids = connection.execute(select(RUN.c.id).where(VISIBLE, has_name).order_by(newest_first)).scalars().all()
        for start in range(0, len(ids), RUNS_READ_AT_ONCE):
            part = ids[start : start + RUNS_READ_AT_ONCE]
            yield from self._summaries(select(RUN).where(RUN.c.id.in_(part)).order_by(newest_first))

    def newest_of_evalsets(self) -> dict[str, RunSummary]:
        """The newest run of every eval set that was run, by its id."""
        newest = select(func.max(RUN.c.id)).where(LISTED).group_by(RUN.c.evalset_id)
        return {run.config.evalset_id: run for run in self._summaries(select(RUN).where(RUN.c.id.in_(newest)))}

    def unfinished_runs(self) -> builtins.list[RunSummary]:
        """Runs that are neither stopped nor at their end, oldest first: a restart takes them up again."""
        unfinished = select(RUN).where(VISIBLE, RUN.c.status.in_(run_queries.UNFINISHED))
        return self._summaries(unfinished.order_by(RUN.c.id))

    def scorings(self, run_id: int) -> builtins.list[RunSummary]:
        """The runs that score the trials of a run again, oldest first; none for a run that is gone."""
        runs = select(RUN).join(RUN_SOURCE, RUN_SOURCE.c.run_id == RUN.c.id)
        return self._summaries(runs.where(RUN_SOURCE.c.source_id == run_id, VISIBLE).order_by(RUN.c.id))

    def trial(self, run_id: int, case_index: int, trial_index: int, *, is_whole: bool = False) -> TrialResult:
        """The result of a trial, its newest recorded attempt, as a page shows it. Raises NotFoundError.

        Unless it `is_whole`, results of tools have the digests of their images.
        """
        results = self.trials(run_id, [(case_index, trial_index)], is_whole=is_whole)
        if not results:
            raise NotFoundError(f"run {run_id}, case {case_index + 1}, trial {trial_index + 1}: not played yet")
        return results[case_index, trial_index]

    def _summaries(self, runs: Select[Any]) -> builtins.list[RunSummary]:
        """The runs, without those whose rows cannot be read: one row keeps nobody from the others."""
        summaries = []
        with self._database.reading() as connection:
            for row in connection.execute(runs).all():
                try:
                    summaries.append(run_queries.summary(connection, row, self._clock))
                except WorkspaceError as error:
                    log.debug("left out of a list: %s", error)
        return summaries


def is_unchanged_since(connection: Connection, seen_run: RunSummary, *, is_taken: bool = False) -> bool:
    """Whether the run stands and is driven as in `seen_run`; it stays so until the transaction ends.

    Of one that is to be taken the lease was not renewed, either.
    """
    same = [RUN.c.id == seen_run.id, RUN.c.status == seen_run.status, RUN.c.lease == seen_run.lease, VISIBLE]
    if is_taken:
        same.append(RUN.c.leased_until.is_not_distinct_from(seen_run.leased_until))
    return connection.execute(update(RUN).where(*same).values(driver=RUN.c.driver)).rowcount == 1


# The kind marks an imported run, which nothing can play: decision 009.
def imported_agent(name: str) -> AgentRef:
    """The agent of an imported run: a name, and nothing that could be loaded."""
    return AgentRef(id=name, target="", kind=IMPORTED)


def is_imported(config: RunConfig) -> bool:
    """Whether the run's trials came in a file."""
    return is_imported_agent(config.agent)


def is_imported_agent(agent: AgentRef) -> bool:
    """Whether the agent is the name of one whose trials came in a file."""
    return agent.kind == IMPORTED


def is_playable(config: RunConfig) -> bool:
    """Whether missing trials can be had: played by the agent, or scored again from those of the imported run."""
    return not is_imported(config) or config.source_run_id is not None


def has_evalset(config: RunConfig) -> bool:
    """Whether the run's cases are an eval set's; those of an imported run may have come with it."""
    return not config.evalset_id.startswith(planning.NO_EVALSET)
