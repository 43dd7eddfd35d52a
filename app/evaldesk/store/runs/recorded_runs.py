"""Runs that another tool played: stored as finished runs of ours, with every total counted as for our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult
from evaldesk.store.clock import Clock
from evaldesk.store.database import Database
from evaldesk.store.runs import planning
from evaldesk.store.runs.recording import record
from evaldesk.store.runs.storable import storable_rows

IMPORTED = "imported"
"""The kind of agent whose trials came in a file; it cannot be played."""

NO_EVALSET = "imported-"
"""The start of the eval set ids of runs whose cases came with them and are in no file here."""

MAX_TRIALS = 200_000
MAX_SCORE = 1e100
BATCH = 500


class RecordedRunStore:
    """Where imported trials become runs."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, config: RunConfig, cases: Sequence[Case], results: Sequence[TrialResult], reason: str) -> int:
        """Store a finished run in one transaction and return its id; `reason` says where it came from.

        A case with fewer trials than another has the rest of them unplayed. Raises UsageError without a trial, for
        more than MAX_TRIALS, and for a trial of a case that is not there.
        """
        check_trials(cases, results)
        n = max(result.trial_index for result in results) + 1
        with self._database.writing() as connection:
            run_id = planning.plan(connection, replace(config, n=n), cases, self._clock())
            for start in range(0, len(results), BATCH):
                batch = [replace(result, run_id=run_id, attempt=1) for result in results[start : start + BATCH]]
                record(connection, storable_rows(batch), self._clock)
            planning.set_status(connection, run_id, "finished", reason, "", self._clock)
        return run_id


def imported_agent(name: str) -> AgentRef:
    """The agent of an imported run: a name, and nothing that could be loaded."""
    return AgentRef(id=name, target="", kind=IMPORTED)


def is_imported(config: RunConfig) -> bool:
    """Whether the run's trials came in a file."""
    return config.agent.kind == IMPORTED


def is_playable(config: RunConfig) -> bool:
    """Whether missing trials can be had: played by the agent, or scored again from those of the imported run."""
    return not is_imported(config) or config.source_run_id is not None


def has_evalset(config: RunConfig) -> bool:
    """Whether the run's cases are an eval set's; those of an imported run may have come with it."""
    return not config.evalset_id.startswith(NO_EVALSET)


def check_trials(cases: Sequence[Case], results: Sequence[TrialResult]) -> None:
    """Raise UsageError for trials that cannot be stored as a run of these cases."""
    if not results:
        raise UsageError("the file holds no trial; there is nothing to store as a run")
    for result in results:
        if not 0 <= result.case_index < len(cases) or result.trial_index < 0:
            place = f"case {result.case_index}, trial {result.trial_index}"
            raise UsageError(f"a trial is of {place}, but the run has {len(cases)} cases")
        huge = next(
            (score for score in result.scores if score.value is not None and abs(score.value) > MAX_SCORE), None
        )
        if huge:
            raise UsageError(f"{huge.metric}: a score of {huge.value:g} cannot be added up with others")
    n_trials = len(cases) * (max(result.trial_index for result in results) + 1)
    if n_trials > MAX_TRIALS:
        raise UsageError(f"{n_trials:,} trials are more than the {MAX_TRIALS:,} of one run")
