"""Forks of trials: the runs that continue a trial, by the trial and by their fingerprint."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from sqlalchemy import ColumnElement, select

from evaldesk.model import TurnRecord
from evaldesk.model.stored import RunSummary
from evaldesk.store import pinned_turns
from evaldesk.store.database import StorePart
from evaldesk.store.media import results_whole
from evaldesk.store.runs import run_queries
from evaldesk.store.tables.runs import RUN, RUN_CASE, RUN_SOURCE, VISIBLE

MOST_LISTED = 500
"""Forks of one trial that are read at once, the newest."""


class ForkStore(StorePart):
    """The forks of a workspace. Each is a run of one case that names its parent."""

    def of_trial(
        self, run_id: int, case_index: int, trial_index: int, most: int = MOST_LISTED
    ) -> builtins.list[RunSummary]:
        """The forks of a trial, oldest first, at most the newest `most`; the parent may be gone."""
        place = (RUN.c.parent_run == run_id, RUN.c.parent_case == case_index, RUN.c.parent_trial == trial_index)
        return self._summaries(*place, most=most)

    def of_run(self, run_id: int) -> builtins.list[RunSummary]:
        """The forks of all trials of a run, oldest first."""
        return self._summaries(RUN.c.parent_run == run_id)

    def same(self, fingerprint: str) -> builtins.list[RunSummary]:
        """The runs of the same fork: of the same content, with the same edits and the same agent; oldest first."""
        return self._summaries(RUN.c.fork_fingerprint == fingerprint)

    def strips(self, run_ids: Sequence[int]) -> dict[int, str]:
        """The letters of the trials of these forks, by their run; `.` is to do."""
        columns = RUN_CASE.c
        rows = select(columns.run_id, columns.strip).where(columns.case_index == 0)
        with self._database.reading() as connection:
            return {
                run_id: strip
                for start in range(0, len(run_ids), MOST_LISTED)
                for run_id, strip in connection.execute(
                    rows.where(columns.run_id.in_(run_ids[start : start + MOST_LISTED]))
                )
            }

    def pinned(self, run_id: int, case_index: int = 0) -> tuple[TurnRecord, ...]:
        """The pinned turns of the trials of a case, with the images of results."""
        with self._database.reading() as connection:
            turns = pinned_turns.of_cases(connection, run_id, [case_index]).get(case_index, ())
            return results_whole(connection, turns)

    def _summaries(self, *conditions: ColumnElement[bool], most: int = MOST_LISTED) -> builtins.list[RunSummary]:
        rows = select(RUN).where(VISIBLE, *conditions, RUN.c.id.not_in(select(RUN_SOURCE.c.run_id)))
        with self._database.reading() as connection:
            newest: Sequence[object] = connection.execute(rows.order_by(RUN.c.id.desc()).limit(most)).all()
            return [run_queries.summary(connection, row, self._clock) for row in reversed(newest)]  # type: ignore[arg-type]
