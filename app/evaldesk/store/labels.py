"""The labels of trials: one label for each labeller and place; each method is one transaction."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, func, select

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.stored import Label, LabelFilter, LabelledTrial, LabelPair, TrialKey, TurnLabel
from evaldesk.store.database import StorePart
from evaldesk.store.failure_steps import has_trial
from evaldesk.store.runs.totals import DECIDED, IS_DISAGREEMENT, OF_TRIAL, WHOLE_TRIAL, label_totals_carried
from evaldesk.store.tables.columns import at, upsert
from evaldesk.store.tables.runs import LABEL, LABEL_TOTAL, RUN, RUN_CASE, SCORE, TRIAL, VISIBLE

_L = LABEL.c
_OF_CASE = (RUN_CASE.c.run_id == _L.run_id) & (RUN_CASE.c.case_index == _L.case_index)
_OF_RUN = RUN.c.id == _L.run_id
_SHOWN = LABEL.join(RUN, _OF_RUN, isouter=True)
"""Labels with their runs. Outer joins keep the labels first: SQLite has no statistics of an empty table and would look
for labels from every run, case or trial."""


class LabelStore(StorePart):
    """Labels of the trials of a workspace. A trial's labels belong to the run that played it, and go with it."""

    def put(
        self,
        run_id: int,
        key: TrialKey,
        turn: int | None,
        labeller: str,
        verdict: str | None,
        note: str,
        *,
        seen_times: Collection[datetime] | None = None,
    ) -> None:
        """Write a label over the labeller's earlier one there; parts that are not given stay.

        `seen_times` are the times of the labels that the person saw: one of that name which is not among them was
        written by somebody else meanwhile, and ConflictError is raised where it says something else. Raises
        NotFoundError when the run never planned that trial.
        """
        place = _place(run_id, key) | {"turn": WHOLE_TRIAL if turn is None else turn, "labeller": labeller}
        with self._database.writing() as connection:
            if not has_trial(connection, place):
                raise NotFoundError(f"run {run_id} has no trial {key[1]} of case {key[0]}")
            if seen_times is not None:
                # Two people under one name do not overwrite each other unseen: decision 172.
                _check_seen(connection, place, seen_times, {"verdict": verdict, "note": note})
            values = {"verdict": verdict, "note": note, "labelled_at": self._clock()}
            statement = upsert(connection.dialect.name, LABEL).values(place | values)
            new_values = {name: value for name, value in values.items() if value}
            with label_totals_carried(connection, [place]):
                connection.execute(
                    statement.on_conflict_do_update(index_elements=list(LABEL.primary_key), set_=new_values)
                )

    def remove(
        self,
        run_id: int,
        key: TrialKey,
        turn: int | None,
        labeller: str,
        *,
        seen_times: Collection[datetime] | None = None,
    ) -> None:
        """Remove a label, if it exists. Raises ConflictError for a label that was written after those `seen_times`."""
        place = _place(run_id, key) | {"turn": WHOLE_TRIAL if turn is None else turn, "labeller": labeller}
        with self._database.writing() as connection:
            if seen_times is not None:
                _check_seen(connection, place, seen_times, {})
            with label_totals_carried(connection, [place]):
                connection.execute(delete(LABEL).where(*at(LABEL, place)))

    def of_trial(self, run_id: int, key: TrialKey) -> builtins.list[Label]:
        """The labels of one trial: of the whole trial first, then turn by turn."""
        rows = select(LABEL).where(*at(LABEL, _place(run_id, key))).order_by(_L.turn, _L.labelled_at)
        with self._database.reading() as connection:
            return [_label(row) for row in connection.execute(rows)]

    def list(
        self, label_filter: LabelFilter, *, before: datetime | None = None, limit: int = 50
    ) -> builtins.list[LabelledTrial]:
        """Labels with their trials, newest first; `before` is the time of the last one of a page."""
        rows = select(LABEL, RUN_CASE.c.case_id, TRIAL.c.verdict.label("trial_verdict"), RUN.c.evalset_id)
        rows = rows.select_from(_SHOWN.join(TRIAL, OF_TRIAL, isouter=True).join(RUN_CASE, _OF_CASE, isouter=True))
        rows = rows.where(VISIBLE, *_matching(label_filter))
        if before is not None:
            rows = rows.where(_L.labelled_at < before)
        with self._database.reading() as connection:
            label_rows = connection.execute(rows.order_by(_L.labelled_at.desc()).limit(limit)).all()
        return [
            LabelledTrial(
                label=_label(row),
                run_id=row.run_id,
                key=(row.case_index, row.trial_index),
                case_id=row.case_id,
                evalset_id=row.evalset_id,
                trial_verdict=row.trial_verdict,
            )
            for row in label_rows
        ]

    def count(self, label_filter: LabelFilter) -> int:
        """The number of labels that a filter shows."""
        totals = LABEL_TOTAL.c
        columns = (
            (totals.run_id, label_filter.run_id),
            (totals.labeller, label_filter.labeller),
            (totals.verdict, label_filter.verdict),
        )
        rows = select(func.coalesce(func.sum(totals.n), 0)).select_from(
            LABEL_TOTAL.join(RUN, RUN.c.id == totals.run_id, isouter=True)
        )
        rows = rows.where(VISIBLE, *(column == value for column, value in columns if value is not None))
        if label_filter.is_disagreement:
            rows = rows.where(totals.is_disagreement)
        with self._database.reading() as connection:
            return int(connection.scalar(rows) or 0)

    def labellers(self) -> builtins.list[str]:
        """All labellers, the last one first."""
        names = select(_L.labeller).group_by(_L.labeller).order_by(func.max(_L.labelled_at).desc())
        with self._database.reading() as connection:
            return builtins.list(connection.scalars(names))

    def of_turns(self, run_id: int | None, n_trials: int) -> builtins.list[TurnLabel]:
        """Every verdict on a turn, of one run or of all, in the `n_trials` trials where one was given last."""
        of_turn = [_L.turn != WHOLE_TRIAL, _L.verdict.in_(DECIDED)]
        if run_id is not None:
            of_turn.append(_L.run_id == run_id)
        places = (_L.run_id, _L.case_index, _L.trial_index)
        last = select(*places).select_from(_SHOWN).where(VISIBLE, *of_turn).group_by(*places)
        last = last.order_by(func.max(_L.labelled_at).desc()).limit(n_trials)
        newest_trials = last.subquery()
        same = [column == newest_trials.c[column.name] for column in places]
        rows = select(LABEL).join(newest_trials, and_(*same)).where(*of_turn).order_by(*places, _L.turn, _L.labeller)
        with self._database.reading() as connection:
            return [
                TurnLabel(
                    row.labeller, row.run_id, (row.case_index, row.trial_index), row.turn, row.verdict == "passed"
                )
                for row in connection.execute(rows)
            ]

    def pairs(self, labelled_run: int | None, scored_run: int | None = None) -> builtins.list[LabelPair]:
        """Every verdict of a person on a whole trial beside the metrics' scores of that trial.

        Of one run, whose trials `scored_run` may have scored again, or of all. `metric` is empty for the verdict of the
        trial itself.
        """
        of_run = [VISIBLE, _L.turn == WHOLE_TRIAL, _L.verdict.in_(DECIDED)]
        if labelled_run is not None:
            of_run.append(_L.run_id == labelled_run)
        run_id = _L.run_id if scored_run is None else scored_run
        names = (_L.labeller, _L.run_id, _L.case_index, _L.trial_index, _L.verdict)
        same_trial, same_score = (
            (of.run_id == run_id) & (of.case_index == _L.case_index) & (of.trial_index == _L.trial_index)
            for of in (TRIAL.c, SCORE.c)
        )
        verdicts = select(*names, TRIAL.c.run_id.label("found"), TRIAL.c.verdict.label("trial_verdict"))
        verdicts = verdicts.select_from(_SHOWN.join(TRIAL, same_trial, isouter=True)).where(*of_run)
        scores = select(*names, SCORE.c.metric, SCORE.c.passed)
        scores = scores.select_from(_SHOWN.join(SCORE, same_score, isouter=True)).where(*of_run)
        with self._database.reading() as connection:
            verdict_rows = [row for row in connection.execute(verdicts) if row.found is not None]
            by_metric = [row for row in connection.execute(scores) if row.passed is not None]
        return [
            *(
                _pair(row, "", row.trial_verdict == "passed" if row.trial_verdict in DECIDED else None)
                for row in verdict_rows
            ),
            *(_pair(row, row.metric, row.passed) for row in by_metric),
        ]


def _check_seen(
    connection: Connection, place: dict[str, Any], shown_times: Collection[datetime], values: dict[str, str | None]
) -> None:
    """Raise ConflictError for a label that was not seen, unless it says all that is said now."""
    label = connection.execute(select(LABEL).where(*at(LABEL, place))).first()
    if label is None or label.labelled_at in shown_times:
        return
    if values and all(not value or label._mapping[name] == value for name, value in values.items()):
        return
    words = label.verdict or "with a note"
    raise ConflictError(
        f"Somebody labelled this as {label.labeller} meanwhile: {words}. Look at that label, then give yours again."
    )


def _matching(label_filter: LabelFilter) -> builtins.list[ColumnElement[bool]]:
    columns = (
        (_L.run_id, label_filter.run_id),
        (_L.labeller, label_filter.labeller),
        (_L.verdict, label_filter.verdict),
    )
    conditions: builtins.list[ColumnElement[bool]] = [column == value for column, value in columns if value is not None]
    return [*conditions, IS_DISAGREEMENT] if label_filter.is_disagreement else conditions


def _place(run_id: int, key: TrialKey) -> dict[str, int]:
    return {"run_id": run_id, "case_index": key[0], "trial_index": key[1]}


def _label(row: Any) -> Label:
    turn = None if row.turn == WHOLE_TRIAL else row.turn
    return Label(row.labeller, row.verdict, row.note, turn, row.labelled_at)


def _pair(row: Any, metric: str, is_passed: bool | None) -> LabelPair:
    return LabelPair(
        row.labeller, (row.run_id, row.case_index, row.trial_index), row.verdict == "passed", metric, is_passed
    )
