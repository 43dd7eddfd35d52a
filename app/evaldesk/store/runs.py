"""Runs and their trials: each method is one transaction."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select, update

from evaldesk.errors import NotFoundError
from evaldesk.model import Case, RunConfig, RunStatus, TrialResult
from evaldesk.store import case_queries, comparing, planning, run_queries
from evaldesk.store.claiming import is_still
from evaldesk.store.clock import Clock
from evaldesk.store.database import Database
from evaldesk.store.recording import record, transcript_row
from evaldesk.store.tables import RUN
from evaldesk.store.values import (
    CaseFilter,
    CaseOutcome,
    CaseRow,
    CaseSort,
    ErrorGroup,
    LastStrip,
    MetricRow,
    Neighbours,
    PendingTrial,
    RunSummary,
    TrialKey,
)

CASES_DELETED_AT_ONCE = 100


class RunStore:
    """Runs, their cases and their trials. Methods that name a run raise NotFoundError when there is no such run."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def create(self, config: RunConfig, cases: Sequence[Case], driver: str = "") -> int:
        """Plan every trial of a new run and return its id; `driver` is who will play it.

        Raises UsageError without cases, or for n below 1.
        """
        with self._database.writing() as connection:
            return planning.plan(connection, config, cases, self._clock(), driver)

    def record(self, results: Sequence[TrialResult]) -> int:
        """Make results durable in one transaction and return how many counted.

        A result for a trial that has one already does not count; a cancelled trial counts and stays to do.
        """
        if not results:
            return 0
        rows = [(result, transcript_row(result)) for result in results]
        with self._database.writing() as connection:
            return record(connection, rows, self._clock)

    def set_status(self, run_id: int, status: RunStatus, reason: str = "", *, driver: str | None = None) -> None:
        """Move a run on; `driver` names the process that plays it, None leaves the name as it is."""
        with self._database.writing() as connection:
            planning.set_status(connection, run_id, status, reason, driver, self._clock)

    def move_on(self, seen: RunSummary, status: RunStatus, reason: str = "", *, driver: str | None = None) -> bool:
        """As `set_status`, for a run that has still the status and the driver it was `seen` with.

        False, and nothing is written, when somebody else was quicker: of several who take up a run one gets it, and
        a run that ended meanwhile is not asked to stop.
        """
        with self._database.writing() as connection:
            if not is_still(connection, seen):
                return False
            planning.set_status(connection, seen.id, status, reason, driver, self._clock)
            return True

    def set_note(self, run_id: int, note: str) -> None:
        """Change what a person wrote about a run."""
        with self._database.writing() as connection:
            run_queries.run_row(connection, run_id)
            connection.execute(update(RUN).where(RUN.c.id == run_id).values(note=note))

    def pending(self, run_id: int) -> builtins.list[PendingTrial]:
        """The trials to play, the first trial of every case before the second of any."""
        with self._database.reading() as connection:
            return planning.pending(connection, run_id)

    def retry_errored(self, run_id: int) -> int:
        """Plan the errored trials of a run again and return how many they are."""
        with self._database.writing() as connection:
            return planning.retry_errored(connection, run_id)

    def delete(self, run_id: int) -> None:
        """Delete a run; it is gone from every list at once. Raises ConflictError while it is going."""
        with self._database.writing() as connection:
            planning.hide(connection, run_id, self._clock())
        self.finish_deleting()

    def finish_deleting(self) -> None:
        """Delete what hidden runs still hold, in steps that let others write; also after a crash on the way."""
        with self._database.reading() as connection:
            hidden = connection.scalars(select(RUN.c.id).where(RUN.c.deleted_at.is_not(None))).all()
        for run_id in hidden:
            is_left = True
            while is_left:
                with self._database.writing() as connection:
                    is_left = planning.delete_some(connection, run_id, CASES_DELETED_AT_ONCE)

    def summary(self, run_id: int) -> RunSummary:
        """A run and its totals."""
        with self._database.reading() as connection:
            return run_queries.summary(run_queries.run_row(connection, run_id), self._clock)

    def list(
        self,
        *,
        status: RunStatus | None = None,
        agent_id: str | None = None,
        evalset_id: str | None = None,
        text: str = "",
        before: int | None = None,
        limit: int = 50,
    ) -> builtins.list[RunSummary]:
        """Runs, newest first; `text` is looked for in note, agent and eval set, `before` is the last id of a page."""
        with self._database.reading() as connection:
            rows = run_queries.newest_runs(
                connection,
                status=status,
                agent_id=agent_id,
                evalset_id=evalset_id,
                text=text,
                before=before,
                limit=limit,
            )
        return self._summaries(rows)

    def newest_of_evalsets(self) -> dict[str, RunSummary]:
        """The newest run of every eval set that was run, by its id."""
        with self._database.reading() as connection:
            rows = run_queries.newest_of_evalsets(connection)
        return {run.config.evalset_id: run for run in self._summaries(rows)}

    def counts_by_status(
        self, *, agent_id: str | None = None, evalset_id: str | None = None, text: str = ""
    ) -> dict[RunStatus, int]:
        """How many of the matching runs there are of each status that occurs."""
        with self._database.reading() as connection:
            return run_queries.counts_by_status(connection, agent_id=agent_id, evalset_id=evalset_id, text=text)

    def agents(self) -> builtins.list[str]:
        """The agents that any run is of, in order."""
        with self._database.reading() as connection:
            return run_queries.distinct(connection, "agent_id")

    def evalsets(self) -> builtins.list[str]:
        """The eval sets that any run is of, in order."""
        with self._database.reading() as connection:
            return run_queries.distinct(connection, "evalset_id")

    def unfinished_runs(self) -> builtins.list[RunSummary]:
        """Runs that are neither stopped nor at their end, oldest first: what a restart takes up again."""
        with self._database.reading() as connection:
            unfinished = select(RUN).where(RUN.c.deleted_at.is_(None), RUN.c.status.in_(run_queries.UNFINISHED))
            rows = connection.execute(unfinished.order_by(RUN.c.id)).all()
        return self._summaries(rows)

    def case(self, run_id: int, case_index: int) -> Case:
        """The case as it was run. Raises NotFoundError."""
        with self._database.reading() as connection:
            return case_queries.snapshot(connection, run_id, case_index)

    def cases(self, run_id: int) -> builtins.list[Case]:
        """All cases as they were run, in the order of the run."""
        with self._database.reading() as connection:
            return case_queries.snapshots(connection, run_id)

    def scorings(self, run_id: int) -> builtins.list[RunSummary]:
        """The runs that score the trials of a run again, oldest first; none for a run that is gone."""
        with self._database.reading() as connection:
            rows = run_queries.scorings(connection, run_id)
        return self._summaries(rows)

    def case_rows(
        self,
        run_id: int,
        *,
        sort: CaseSort = "worst",
        only: CaseFilter | None = None,
        after: str = "",
        limit: int = 50,
    ) -> builtins.list[CaseRow]:
        """A page of cases; `after` is the cursor of the last row before it. Raises UsageError for another's cursor."""
        with self._database.reading() as connection:
            return case_queries.case_rows(connection, run_id, sort=sort, only=only, after=after, limit=limit)

    def case_row(self, run_id: int, case_index: int) -> CaseRow:
        """One case as a line. Raises NotFoundError."""
        with self._database.reading() as connection:
            return case_queries.case_row(connection, run_id, case_index)

    def case_ids(self, run_id: int, case_indexes: Sequence[int] | None = None) -> dict[int, str]:
        """What the cases of a run are called, all of them or those at some places."""
        with self._database.reading() as connection:
            return case_queries.case_ids(connection, run_id, case_indexes)

    def case_counts(self, run_id: int) -> dict[CaseFilter, int]:
        """How many cases each filter of `case_rows` shows."""
        with self._database.reading() as connection:
            return case_queries.case_counts(connection, run_id)

    def outcome_counts(self, run_id: int) -> builtins.list[tuple[int, int, int]]:
        """Cases by what became of their trials, (n_scored, n_passed, n_cases): all that pass@k needs.

        Errored trials are scored where the run counts errors as failures.
        """
        with self._database.reading() as connection:
            return case_queries.outcome_counts(connection, run_id)

    def metric_rows(self, run_id: int) -> builtins.list[MetricRow]:
        """The scores of each metric over the run, in the order of its criteria."""
        with self._database.reading() as connection:
            return run_queries.metric_rows(connection, run_id)

    def case_outcomes(self, run_id: int) -> builtins.list[CaseOutcome]:
        """Every case with its counts and means, for a comparison."""
        with self._database.reading() as connection:
            return comparing.case_outcomes(connection, run_id)

    def median_ms(self, run_id: int) -> float | None:
        """The middle of the trials' times in milliseconds; None before the first is done."""
        with self._database.reading() as connection:
            return comparing.median_ms(connection, run_id)

    def score_counts(self, run_id: int) -> dict[str, builtins.list[tuple[float, int]]]:
        """For each metric its values in order, each with how many trials have it; reads every score of the run."""
        with self._database.reading() as connection:
            return comparing.score_counts(connection, run_id)

    def error_groups(self, run_id: int) -> builtins.list[ErrorGroup]:
        """The errors of a run by what they say, the most frequent first."""
        with self._database.reading() as connection:
            return run_queries.error_groups(connection, run_id)

    def neighbours(self, run_id: int, case_index: int, trial_index: int) -> Neighbours:
        """Where the keys lead from a trial. Raises NotFoundError."""
        with self._database.reading() as connection:
            return case_queries.neighbours(connection, run_id, case_index, trial_index)

    def trial(self, run_id: int, case_index: int, trial_index: int) -> TrialResult:
        """What became of a trial: its newest recorded attempt. Raises NotFoundError."""
        found = self.trials(run_id, [(case_index, trial_index)])
        if not found:
            raise NotFoundError(f"run {run_id}, case {case_index}, trial {trial_index}: not played yet")
        return found[case_index, trial_index]

    def trials(self, run_id: int, keys: Sequence[TrialKey]) -> dict[TrialKey, TrialResult]:
        """What became of several trials, the newest attempt of each; those that were never recorded are left out."""
        with self._database.reading() as connection:
            return run_queries.trials(connection, run_id, keys)

    def last_strips(self, evalset_id: str) -> dict[str, LastStrip]:
        """For each case id of an eval set that ever ran: its newest run and its strip there."""
        with self._database.reading() as connection:
            return run_queries.last_strips(connection, evalset_id)

    def _summaries(self, rows: Sequence[Row[Any]]) -> builtins.list[RunSummary]:
        return [run_queries.summary(row, self._clock) for row in rows]
