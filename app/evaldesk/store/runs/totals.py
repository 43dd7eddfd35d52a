"""The totals that pages read: added to result by result, or counted again from the trials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, func, insert, select, update

from evaldesk.store.database import execute_many, upsert
from evaldesk.store.runs.contribution import COUNTERS, Values, error_group
from evaldesk.store.tables import CASE_METRIC, ERROR_GROUP, RUN, RUN_CASE, SCORE, STRIP_OF, TO_DO, TRIAL

SUMS = ("n", "n_passed", "total", "total_squares")


def add_scores(connection: Connection, scores: Sequence[Values]) -> None:
    """Add rows of `score` to the totals of their metric in their case."""
    execute_many(connection, _add_score(connection.dialect.name), [_first(score) for score in scores])


def add_errors(connection: Connection, trials: Sequence[Values]) -> None:
    """Count errored trials among the errors of their run that say the same."""
    execute_many(connection, _add_error(connection.dialect.name), [_group(trial) for trial in trials])


def recount(connection: Connection, run_id: int) -> None:
    """Count every total of a run again from its trials and scores."""
    _recount_cases(connection, run_id)
    _recount_metrics(connection, run_id)
    _recount_errors(connection, run_id)
    sums = {name: func.coalesce(func.sum(RUN_CASE.c[name]), 0) for name in COUNTERS}
    totals = connection.execute(
        select(*(total.label(name) for name, total in sums.items())).where(RUN_CASE.c.run_id == run_id)
    ).one()
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(totals._asdict()))


@cache
def _add_score(dialect: str) -> Any:
    statement = upsert(dialect, CASE_METRIC)
    held, new = CASE_METRIC.c, statement.excluded
    sums = {name: held[name] + new[name] for name in SUMS}
    low = case((new.low < held.low, new.low), else_=held.low)
    high = case((new.high > held.high, new.high), else_=held.high)
    fresh = sums | {"low": low, "high": high}
    return statement.on_conflict_do_update(index_elements=list(CASE_METRIC.primary_key), set_=fresh)


@cache
def _add_error(dialect: str) -> Any:
    more = {"n": ERROR_GROUP.c.n + 1}
    key = list(ERROR_GROUP.primary_key)
    return upsert(dialect, ERROR_GROUP).on_conflict_do_update(index_elements=key, set_=more)


def _recount_cases(connection: Connection, run_id: int) -> None:
    done = TRIAL.c.verdict.is_not(None)
    unpriced = done & TRIAL.c.cost.is_(None) & (TRIAL.c.n_calls > 0)
    sums = {f"n_{verdict}": _count(TRIAL.c.verdict == verdict) for verdict in STRIP_OF}
    sums |= {"n_unpriced": _count(unpriced)}
    for name in ("tokens_in", "tokens_out", "cost", "duration_ms"):
        sums[name] = func.coalesce(func.sum(case((done, TRIAL.c[name]))), 0)
    of_run = TRIAL.c.run_id == run_id
    totals = connection.execute(
        select(TRIAL.c.case_index, *(total.label(name) for name, total in sums.items()))
        .where(of_run)
        .group_by(TRIAL.c.case_index)
    ).all()
    letters: dict[int, str] = {}
    verdicts = select(TRIAL.c.case_index, TRIAL.c.verdict).where(of_run)
    for index, verdict in connection.execute(verdicts.order_by(TRIAL.c.case_index, TRIAL.c.trial_index)):
        letters[index] = letters.get(index, "") + STRIP_OF.get(verdict, TO_DO)
    rows = [
        {"at_case_index": index, "strip": letters[index]} | dict(zip(sums, values, strict=True))
        for index, *values in totals
    ]
    at = (RUN_CASE.c.run_id == run_id) & (RUN_CASE.c.case_index == bindparam("at_case_index"))
    execute_many(connection, update(RUN_CASE).where(at), rows)


def _recount_metrics(connection: Connection, run_id: int) -> None:
    value = SCORE.c.value
    sums = [func.count(), _count(SCORE.c.passed.is_(True)), func.sum(value), func.sum(value * value)]
    names = ["run_id", "case_index", "metric"]
    key = [SCORE.c[name] for name in names]
    totals = select(*key, *sums, func.min(value), func.max(value)).where(SCORE.c.run_id == run_id).group_by(*key)
    connection.execute(delete(CASE_METRIC).where(CASE_METRIC.c.run_id == run_id))
    connection.execute(insert(CASE_METRIC).from_select([*names, *SUMS, "low", "high"], totals))


def _recount_errors(connection: Connection, run_id: int) -> None:
    connection.execute(delete(ERROR_GROUP).where(ERROR_GROUP.c.run_id == run_id))
    errored = select(TRIAL).where(TRIAL.c.run_id == run_id, TRIAL.c.verdict == "errored")
    rows = connection.execute(errored.order_by(TRIAL.c.recorded_at, TRIAL.c.case_index, TRIAL.c.trial_index))
    add_errors(connection, [row._asdict() for row in rows])


def _first(score: Values) -> Values:
    value = score["value"]
    key = {name: score[name] for name in ("run_id", "case_index", "metric")}
    sums = {"n": 1, "n_passed": int(score["passed"] is True), "total": value, "total_squares": value * value}
    return key | sums | {"low": value, "high": value}


def _group(trial: Values) -> Values:
    kind, message = error_group(trial)
    first = {name: trial[name] for name in ("run_id", "case_index", "trial_index")}
    return first | {"kind": kind, "message": message, "example": trial["error_message"] or "", "n": 1}


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)
