"""Review queues, and the labels that are given in them; each verb is one transaction and can be undone as a whole."""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.queues import GivenLabel, LabelStep, Queue, QueueDraft, QueueItem, QueueProgress, QueueStratum
from evaldesk.model.stored import Label
from evaldesk.store.database import StorePart
from evaldesk.store.failures import list_values, trial_numbers
from evaldesk.store.runs.totals import WHOLE_TRIAL, label_totals_carried
from evaldesk.store.tables.columns import at, replacing
from evaldesk.store.tables.failures import FINDING
from evaldesk.store.tables.queues import LABEL_STEP, QUEUE, QUEUE_ITEM
from evaldesk.store.tables.runs import LABEL, RUN, RUN_CASE, SCORE, TRIAL, VISIBLE
from evaldesk.wire import from_json, to_json

_I = QUEUE_ITEM.c
_OF_RUN = (RUN.c.id == _I.run_id) & VISIBLE
_OF_CASE = (RUN_CASE.c.run_id == _I.run_id) & (RUN_CASE.c.case_index == _I.case_index)
_OF_TRIAL = and_(*(TRIAL.c[name] == _I[name] for name in ("run_id", "case_index", "trial_index")))
_SAME_PLACE = and_(
    LABEL.c.run_id == _I.labelled_run,
    LABEL.c.case_index == _I.case_index,
    LABEL.c.trial_index == _I.trial_index,
    LABEL.c.turn == WHOLE_TRIAL,
)
_KEPT = ("verdict", "note", "labelled_at")


class QueueStore(StorePart):
    """The review queues of a workspace. A trial leaves its queues with its run."""

    def create(
        self, strata: Sequence[QueueStratum], drafts: Sequence[QueueDraft], author: str, *, is_blind: bool
    ) -> int:
        """Store a queue with its trials in this order. Raises NotFoundError when a trial is not there any more."""
        values = {"strata": to_json(list(strata)).decode(), "is_blind": is_blind, "author": author}
        with self._database.writing() as connection:
            statement = insert(QUEUE).values(values | {"created_at": self._clock()}).returning(QUEUE.c.id)
            queue_id: int = connection.execute(statement).scalar_one()
            rows = [
                {
                    "queue_id": queue_id,
                    "place": place,
                    "run_id": draft.run_id,
                    "case_index": draft.key[0],
                    "trial_index": draft.key[1],
                    "labelled_run": draft.labelled_run,
                    "kind": draft.kind,
                }
                for place, draft in enumerate(drafts, start=1)
            ]
            if rows:
                connection.execute(insert(QUEUE_ITEM), rows)
            return queue_id

    def get(self, queue_id: int) -> Queue:
        """A queue. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(select(QUEUE).where(QUEUE.c.id == queue_id)).first()
        if row is None:
            raise NotFoundError(f"there is no review queue {queue_id}")
        return _queue(row)

    def items(self, queue_id: int, reader: str) -> builtins.list[QueueItem]:
        """The trials of a queue in their order, each with the label of the reader."""
        mine = and_(_SAME_PLACE, LABEL.c.labeller == reader)
        rows = (
            select(
                QUEUE_ITEM,
                RUN_CASE.c.case_id,
                TRIAL.c.verdict.label("trial_verdict"),
                QUEUE.c.created_at,
                *(LABEL.c[name] for name in ("labeller", *_KEPT)),
            )
            .select_from(QUEUE_ITEM)
            .join(QUEUE, QUEUE.c.id == _I.queue_id)
            .join(RUN, _OF_RUN)
            .join(RUN_CASE, _OF_CASE)
            .join(TRIAL, _OF_TRIAL)
            .outerjoin(LABEL, mine)
            .where(_I.queue_id == queue_id)
            .order_by(_I.place)
        )
        with self._database.reading() as connection:
            return [_item(row) for row in connection.execute(rows)]

    def list(self, reader: str, limit: int = 20) -> builtins.list[QueueProgress]:
        """The newest queues that have a trial, newest first, and how far the reader has come in each."""
        mine = and_(
            _SAME_PLACE,
            LABEL.c.labeller == reader,
            LABEL.c.verdict.is_not(None),
            LABEL.c.labelled_at >= QUEUE.c.created_at,
        )
        newest = select(QUEUE.c.id).order_by(QUEUE.c.id.desc()).limit(limit)
        counts = (
            select(_I.queue_id, func.count().label("n"), func.count(LABEL.c.verdict).label("n_read"))
            .select_from(QUEUE_ITEM)
            .join(QUEUE, QUEUE.c.id == _I.queue_id)
            .join(RUN, _OF_RUN)
            .outerjoin(LABEL, mine)
            .where(_I.queue_id.in_(newest))
            .group_by(_I.queue_id)
            .subquery()
        )
        rows = select(QUEUE, counts.c.n, counts.c.n_read).join(counts, counts.c.queue_id == QUEUE.c.id)
        with self._database.reading() as connection:
            queue_rows = connection.execute(rows.order_by(QUEUE.c.id.desc())).all()
        return [QueueProgress(_queue(row), row.n, row.n_read) for row in queue_rows]

    def give(
        self,
        queue_id: int,
        labels: Sequence[GivenLabel],
        reader: str,
        verdict: str,
        note: str | None,
        *,
        is_blind: bool,
    ) -> int:
        """Store one verdict of a reader on these trials, as one step; `note` None leaves the notes that stand there.

        The same one again, given in this queue already, is no step. Raises NotFoundError for a trial that is not in
        the queue, and ConflictError when one of them got another label under this name since the reader saw it.
        Returns the number of labels.
        """
        with self._database.writing() as connection:
            now = self._clock()
            since = connection.scalar(select(QUEUE.c.created_at).where(QUEUE.c.id == queue_id))
            before: builtins.list[Any] = []
            for each in labels:
                place = _place_of_labels(connection, queue_id, each.place)
                row = connection.execute(select(*(LABEL.c[name] for name in _KEPT)).where(*_at(place, reader))).first()
                if row and row.verdict == verdict and note in (None, row.note) and row.labelled_at >= since:
                    continue
                if (moment_id(row.labelled_at) if row else 0) != each.seen:
                    raise ConflictError(_conflict(reader, row.verdict if row else None))
                text = row.note if row and note is None else note or ""
                values = {"verdict": verdict, "note": text, "labelled_at": now}
                with label_totals_carried(connection, [place]):
                    connection.execute(replacing(connection.dialect.name, LABEL), _key(place, reader) | values)
                before.append([each.place, _label_as_json(row)])
            if before:
                step = {"queue_id": queue_id, "labeller": reader, "n": len(before), "is_blind": is_blind}
                step |= {"before": json.dumps(before, ensure_ascii=False), "taken_at": now, "is_undone": False}
                connection.execute(insert(LABEL_STEP).values(step))
            return len(before)

    def undo(self, queue_id: int, reader: str) -> Sequence[int]:
        """Take back the last step of a reader in a queue; gives the places of its trials.

        Raises NotFoundError when there is none, ConflictError when one of its labels was changed since.
        """
        with self._database.writing() as connection:
            c = LABEL_STEP.c
            mine = select(LABEL_STEP).where(c.queue_id == queue_id, c.labeller == reader, c.is_undone.is_(False))
            row = connection.execute(mine.order_by(c.id.desc()).limit(1)).first()
            if row is None:
                raise NotFoundError("nothing to undo in this queue")
            places = []
            for place, values in json.loads(row.before):
                key = _place_of_labels(connection, queue_id, place)
                now = connection.scalar(select(LABEL.c.labelled_at).where(*_at(key, reader)))
                if now != row.taken_at:
                    raise ConflictError("a label was changed since in another window; nothing was undone")
                with label_totals_carried(connection, [key]):
                    if values is None:
                        connection.execute(delete(LABEL).where(*_at(key, reader)))
                    else:
                        values["labelled_at"] = datetime.fromisoformat(values["labelled_at"])
                        connection.execute(update(LABEL).where(*_at(key, reader)).values(values))
                places.append(place)
            connection.execute(update(LABEL_STEP).where(c.id == row.id).values(is_undone=True))
            return places

    def steps(self, queue_id: int, reader: str) -> builtins.list[LabelStep]:
        """The steps of a reader in a queue, without undone ones, in order."""
        c = LABEL_STEP.c
        mine = select(LABEL_STEP).where(c.queue_id == queue_id, c.labeller == reader, c.is_undone.is_(False))
        with self._database.reading() as connection:
            return [
                LabelStep(row.n, row.is_blind, row.taken_at) for row in connection.execute(mine.order_by(c.id)).all()
            ]

    def verdicts(self, queue_id: int) -> dict[str, dict[int, str]]:
        """The verdicts of each reader on the trials of a queue, by their places."""
        rows = select(LABEL.c.labeller, _I.place, LABEL.c.verdict).select_from(QUEUE_ITEM).join(RUN, _OF_RUN)
        rows = rows.join(LABEL, _SAME_PLACE).where(_I.queue_id == queue_id, LABEL.c.verdict.is_not(None))
        verdicts_by_reader: dict[str, dict[int, str]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(rows.order_by(LABEL.c.labeller, _I.place)):
                verdicts_by_reader.setdefault(row.labeller, {})[row.place] = row.verdict
        return verdicts_by_reader

    def findings(self, queue_id: int, reader: str) -> dict[int | None, set[int]]:
        """The places of the trials in which the reader found each mode; those without a mode under None."""
        same = and_(
            FINDING.c.run_id == _I.labelled_run,
            FINDING.c.case_index == _I.case_index,
            FINDING.c.trial_index == _I.trial_index,
        )
        mine = (FINDING.c.author == reader) & (FINDING.c.status == "counted")
        rows = select(FINDING.c.mode_id, _I.place).select_from(QUEUE_ITEM).join(FINDING, same & mine).join(RUN, _OF_RUN)
        places_by_mode: dict[int | None, set[int]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(rows.where(_I.queue_id == queue_id)):
                places_by_mode.setdefault(row.mode_id, set()).add(row.place)
        return places_by_mode

    def disputed(self, run_id: int) -> set[tuple[int, int]]:
        """The trials of a run that one criterion passed and another failed."""
        s = SCORE.c
        outcomes = select(s.case_index, s.trial_index).where(s.run_id == run_id, s.passed.is_not(None))
        outcomes = outcomes.group_by(s.case_index, s.trial_index, s.passed)
        sides = outcomes.subquery()
        rows = select(sides.c.case_index, sides.c.trial_index).group_by(sides.c.case_index, sides.c.trial_index)
        with self._database.reading() as connection:
            return {(row[0], row[1]) for row in connection.execute(rows.having(func.count() > 1))}

    def trials_by_verdict(self, run_id: int, reader: str) -> dict[str, frozenset[int]]:
        """The trials that a run played and a reader labelled, as their numbers, by the verdict."""
        c = LABEL.c
        mine = [c.run_id == run_id, c.turn == WHOLE_TRIAL, c.labeller == reader, c.verdict.is_not(None)]
        rows = select(c.verdict, trial_numbers(c)).where(*mine).group_by(c.verdict)
        with self._database.reading() as connection:
            return {row[0]: frozenset(list_values(row[1])) for row in connection.execute(rows)}

    def labelled(self, run_id: int) -> dict[tuple[int, int], dict[str, str]]:
        """The verdicts of people on the trials that a run played, by reader."""
        c = LABEL.c
        rows = select(c.case_index, c.trial_index, c.labeller, c.verdict)
        rows = rows.where(c.run_id == run_id, c.turn == WHOLE_TRIAL, c.verdict.is_not(None))
        verdicts_by_trial: dict[tuple[int, int], dict[str, str]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(rows):
                verdicts_by_trial.setdefault((row.case_index, row.trial_index), {})[row.labeller] = row.verdict
        return verdicts_by_trial


def moment_id(time: datetime) -> int:
    """A moment as a whole number of microseconds, to tell a label from a later one at the same place."""
    return round(time.timestamp() * 1_000_000)


def _place_of_labels(connection: Connection, queue_id: int, place: int) -> dict[str, int]:
    """Where the labels of a trial stand. Raises NotFoundError."""
    item = select(QUEUE_ITEM).join(RUN, _OF_RUN).where(_I.queue_id == queue_id, _I.place == place)
    row = connection.execute(item).first()
    if row is None:
        raise NotFoundError(f"review queue {queue_id} has no trial {place}; its run was deleted")
    return {"run_id": row.labelled_run, "case_index": row.case_index, "trial_index": row.trial_index}


def _key(place: dict[str, int], reader: str) -> dict[str, Any]:
    return {**place, "turn": WHOLE_TRIAL, "labeller": reader}


def _at(place: dict[str, int], reader: str) -> builtins.list[Any]:
    return at(LABEL, _key(place, reader))


def _label_as_json(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"verdict": row.verdict, "note": row.note, "labelled_at": row.labelled_at.isoformat()}


def _conflict(reader: str, verdict: str | None) -> str:
    now = f"it says {verdict} now" if verdict else "it was taken away"
    return f"the label by {reader} was changed in another window meanwhile: {now}; nothing was stored"


def _queue(row: Any) -> Queue:
    strata = from_json(row.strata, list[QueueStratum])
    return Queue(row.id, strata, row.is_blind, row.author, row.created_at)


def _item(row: Any) -> QueueItem:
    label = None if row.labeller is None else Label(row.labeller, row.verdict, row.note, None, row.labelled_at)
    return QueueItem(
        place=row.place,
        run_id=row.run_id,
        key=(row.case_index, row.trial_index),
        labelled_run=row.labelled_run,
        case_id=row.case_id,
        kind=row.kind,
        trial_verdict=row.trial_verdict,
        label=label,
        is_read=bool(label and label.verdict and label.labelled_at >= row.created_at),
    )
