"""Searches for the decisive turns of failed trials: plans, leases and answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Select, insert, or_, select, update

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.blame import UNFINISHED, Blame, BlamePlan, BlameStatus
from evaldesk.model.decisive_turn import Answer
from evaldesk.model.stored import TrialKey
from evaldesk.store.database import StorePart
from evaldesk.store.runs.planning import NEW_LEASE
from evaldesk.store.tables.blames import BLAME
from evaldesk.store.tables.columns import DatabaseSeconds
from evaldesk.store.tables.runs import RUN, VISIBLE
from evaldesk.wire import from_json, to_json

_IS_LEASED = BLAME.c.leased_until > DatabaseSeconds()
_OF_RUN = (RUN.c.id == BLAME.c.run_id) & VISIBLE


class BlameStore(StorePart):
    """The searches of a workspace. They go with the trial that they are about."""

    def create(self, plans: Sequence[BlamePlan]) -> list[int]:
        """Store searches as one batch, in the order in which they are to be played; gives their ids.

        Raises ConflictError where one of the trials is being searched.
        """
        ids: list[int] = []
        with self._database.writing() as connection:
            live_keys = _live_keys(connection, {plan.run_id for plan in plans})
            for plan in plans:
                if (plan.run_id, *plan.key) in live_keys:
                    case_index, trial_index = plan.key
                    raise ConflictError(
                        f"the decisive turn of trial {trial_index + 1} of case {case_index + 1} is being looked for "
                        "already"
                    )
            for plan in plans:
                row = {
                    "batch_id": ids[0] if ids else 0,
                    "run_id": plan.run_id,
                    "case_index": plan.case_index,
                    "trial_index": plan.trial_index,
                    "status": "planned",
                    "reason": "",
                    "plan": to_json(plan).decode(),
                    "answer": "",
                    "created_at": self._clock(),
                }
                ids.append(connection.execute(insert(BLAME).values(row).returning(BLAME.c.id)).scalar_one())
            connection.execute(update(BLAME).where(BLAME.c.id.in_(ids[:1])).values(batch_id=BLAME.c.id))
        return ids

    def take(self, blame_id: int) -> bool:
        """Lease a search to this process; False while another process has it, or where it is over."""
        free = (BLAME.c.id == blame_id) & or_(BLAME.c.leased_until.is_(None), ~_IS_LEASED)
        return self._change(free & BLAME.c.status.in_(UNFINISHED), status="running", leased_until=NEW_LEASE)

    def renew(self, blame_id: int) -> None:
        """Keep the lease for some more seconds."""
        self._change((BLAME.c.id == blame_id) & BLAME.c.status.in_(UNFINISHED), leased_until=NEW_LEASE)

    def note(self, blame_id: int, answer: Answer) -> None:
        """Store the answer of the forks so far."""
        self._change(BLAME.c.id == blame_id, answer=to_json(answer).decode())

    def end(self, blame_id: int, status: BlameStatus, reason: str = "", answer: Answer | None = None) -> None:
        """End a search and its lease."""
        values = {"answer": to_json(answer).decode()} if answer else {}
        self._change(BLAME.c.id == blame_id, status=status, reason=reason, leased_until=None, **values)

    def release(self, blame_id: int) -> None:
        """Give the lease back, so that the next process goes on at once."""
        self._change(BLAME.c.id == blame_id, leased_until=None)

    def reopen(self, blame_id: int) -> bool:
        """Let a stopped or failed search go on; False for any other one."""
        return self._change((BLAME.c.id == blame_id) & BLAME.c.status.in_(("stopped", "failed")), status="planned")

    def get(self, blame_id: int) -> Blame:
        """A search. Raises NotFoundError."""
        blames = self._blames(_ALL.where(BLAME.c.id == blame_id))
        if not blames:
            raise NotFoundError(f"there is no search {blame_id} for a decisive turn")
        return blames[0]

    def of_trial(self, run_id: int, key: TrialKey) -> list[Blame]:
        """The searches of a trial, newest last."""
        case_index, trial_index = key
        place = (BLAME.c.case_index == case_index) & (BLAME.c.trial_index == trial_index)
        return self._blames(_ALL.where(BLAME.c.run_id == run_id, place))

    def of_run(self, run_id: int) -> list[Blame]:
        """The searches of the trials of a run, newest last."""
        return self._blames(_ALL.where(BLAME.c.run_id == run_id))

    def of_batch(self, batch_id: int) -> list[Blame]:
        """The searches that share a budget, in the order in which they are played."""
        return self._blames(_ALL.where(BLAME.c.batch_id == batch_id))

    def live(self) -> list[Blame]:
        """The searches that are to go on, whether a process plays them or not."""
        return self._blames(_ALL.where(BLAME.c.status.in_(UNFINISHED)))

    def unfinished(self) -> list[Blame]:
        """The searches that are to go on and that no process plays."""
        return [each for each in self.live() if not each.is_leased]

    def _change(self, condition: Any, **values: object) -> bool:
        with self._database.writing() as connection:
            return connection.execute(update(BLAME).where(condition).values(values)).rowcount == 1

    def _blames(self, rows: Select[Any]) -> list[Blame]:
        with self._database.reading() as connection:
            return [_blame(row) for row in connection.execute(rows.order_by(BLAME.c.id))]


def _live_keys(connection: Connection, run_ids: Collection[int]) -> set[tuple[int, int, int]]:
    rows = select(BLAME.c.run_id, BLAME.c.case_index, BLAME.c.trial_index)
    rows = rows.where(BLAME.c.run_id.in_(run_ids), BLAME.c.status.in_(UNFINISHED))
    return {(run_id, case_index, trial_index) for run_id, case_index, trial_index in connection.execute(rows)}


_ALL = select(BLAME, _IS_LEASED.label("is_leased")).join(RUN, _OF_RUN)


def _blame(row: Any) -> Blame:
    return Blame(
        id=row.id,
        plan=from_json(row.plan, BlamePlan),
        batch_id=row.batch_id,
        status=row.status,
        reason=row.reason,
        answer=from_json(row.answer, Answer) if row.answer else None,
        created_at=row.created_at,
        is_leased=bool(row.is_leased),
    )
