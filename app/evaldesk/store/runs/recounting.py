"""Totals of a run, counted again from its trials and scores: of a retry, a repair, a run of an earlier version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, func, insert, select, update

from evaldesk.store.database import execute_many
from evaldesk.store.runs import totals
from evaldesk.store.runs.recording import ADD_TO_RUN, COUNTERS, SUMS, Values, add_errors, error_group
from evaldesk.store.tables.runs import (
    CASE_METRIC,
    ERROR_GROUP,
    LETTERS,
    N_OF_CASE,
    OF_CASE,
    RUN,
    RUN_CASE,
    SCORE,
    TO_DO,
    TRIAL,
)

_MOST_CASES = 2**31 - 1


def recount(connection: Connection, run_id: int) -> None:
    """Count every total of a run again from its trials and scores; those over its cases are left to `add_totals`."""
    _recount_cases(connection, run_id)
    _recount_metrics(connection, run_id)
    connection.execute(delete(ERROR_GROUP).where(ERROR_GROUP.c.run_id == run_id))
    errored_trials = select(TRIAL).where(TRIAL.c.run_id == run_id, TRIAL.c.verdict == "errored")
    rows = connection.execute(errored_trials.order_by(TRIAL.c.recorded_at, TRIAL.c.case_index, TRIAL.c.trial_index))
    add_errors(connection, [row._asdict() for row in rows])
    totals.forget(connection, run_id)
    sums = {name: func.coalesce(func.sum(RUN_CASE.c[name]), 0) for name in COUNTERS}
    summed = connection.execute(
        select(*(total.label(name) for name, total in sums.items())).where(RUN_CASE.c.run_id == run_id)
    ).one()
    fresh = (TRIAL.c.run_id == run_id) & (TRIAL.c.trial_index >= N_OF_CASE)
    counts = select(_count(TRIAL.c.verdict.is_(None)), _count(TRIAL.c.verdict == "errored")).select_from(TRIAL)
    todo, errors = connection.execute(counts.join(RUN_CASE, OF_CASE).where(fresh)).one()
    confirming = {"n_confirming_todo": todo, "n_confirming_errored": errors}
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(summed._asdict() | confirming))


def recount_some(connection: Connection, run_id: int, first: int, end: int, n_confirming: int) -> None:
    """Count the totals of the cases from `first` to before `end` again, and bring those of the run up to date.

    `n_confirming` trials beside the planned ones were errored and are to do again. The totals over cases must have been
    forgotten before.
    """
    before = _sums(connection, run_id, first, end)
    _recount_cases(connection, run_id, first, end)
    _recount_metrics(connection, run_id, first, end)
    after = _sums(connection, run_id, first, end)
    gains: Values = {f"add_{name}": after[name] - before[name] for name in COUNTERS}
    gains |= {"add_n_confirming_todo": n_confirming, "add_n_confirming_errored": -n_confirming}
    zero_gains = {"add_active_ms": 0.0, "add_start_ms": 0.0, "add_n_duplicates": 0, "add_n_played_again": 0}
    connection.execute(ADD_TO_RUN, {"at_run_id": run_id} | gains | zero_gains)


def forget_errors(connection: Connection, trials: Sequence[Values]) -> None:
    """Take errored trials out of the groups of errors of their run."""
    of_group = [ERROR_GROUP.c[name] == bindparam(f"at_{name}") for name in ("run_id", "kind", "message")]
    keys = [(trial["run_id"], *error_group(trial)) for trial in trials]
    rows = [
        {"at_run_id": run_id, "at_kind": kind, "at_message": message, "n_gone": n}
        for (run_id, kind, message), n in Counter(keys).items()
    ]
    execute_many(connection, update(ERROR_GROUP).where(*of_group).values(n=ERROR_GROUP.c.n - bindparam("n_gone")), rows)
    run_ids = {trial["run_id"] for trial in trials}
    connection.execute(delete(ERROR_GROUP).where(ERROR_GROUP.c.run_id.in_(run_ids), ERROR_GROUP.c.n <= 0))


def _sums(connection: Connection, run_id: int, first: int, end: int) -> Values:
    columns = RUN_CASE.c
    some = (columns.run_id == run_id) & (columns.case_index >= first) & (columns.case_index < end)
    sums = [func.coalesce(func.sum(columns[name]), 0).label(name) for name in COUNTERS]
    row = connection.execute(select(*sums).where(some)).one()
    return {
        name: float(value) if name in ("cost", "duration_ms") else int(value) for name, value in row._mapping.items()
    }


def add_totals(connection: Connection, run_id: int) -> bool:
    """Add the next cases of a run to its totals, where they were never counted; False when there are no more."""
    config = connection.scalar(select(RUN.c.config).where(RUN.c.id == run_id, RUN.c.n_totalled < RUN.c.n_cases))
    return config is not None and totals.add_some(connection, run_id, totals.are_errors_failures(config))


def _recount_cases(connection: Connection, run_id: int, first: int = 0, end: int = _MOST_CASES) -> None:
    is_done, is_planned = TRIAL.c.verdict.is_not(None), TRIAL.c.trial_index < N_OF_CASE
    unpriced = is_done & TRIAL.c.cost.is_(None) & (TRIAL.c.n_calls > 0)
    sums = {f"n_{verdict}": _count(is_planned & (TRIAL.c.verdict == verdict)) for verdict in LETTERS}
    sums |= {"n_unpriced": _count(unpriced), "n_uncounted": _count(is_done & TRIAL.c.is_least)}
    sums |= {"n_timed": _count(is_done & is_planned & (TRIAL.c.duration_ms > 0))}
    for name in ("tokens_in", "tokens_out", "cost"):
        sums[name] = func.coalesce(func.sum(case((is_done, TRIAL.c[name]))), 0)
    sums["duration_ms"] = func.coalesce(func.sum(case((is_done & is_planned, TRIAL.c.duration_ms))), 0)
    of_run = (TRIAL.c.run_id == run_id) & (TRIAL.c.case_index >= first) & (TRIAL.c.case_index < end)
    totals = connection.execute(
        select(TRIAL.c.case_index, N_OF_CASE, *(total.label(name) for name, total in sums.items()))
        .join(RUN_CASE, OF_CASE)
        .where(of_run)
        .group_by(TRIAL.c.case_index, RUN_CASE.c.strip)
    ).all()
    letters = {index: [TO_DO] * n for index, n, *_ in totals}
    verdicts = select(TRIAL.c.case_index, TRIAL.c.trial_index, TRIAL.c.verdict).join(RUN_CASE, OF_CASE)
    for index, trial_index, verdict in connection.execute(verdicts.where(of_run, is_planned)):
        letters[index][trial_index] = LETTERS.get(verdict, TO_DO)
    rows = [
        {"at_case_index": index, "strip": "".join(letters[index])} | dict(zip(sums, values, strict=True))
        for index, _, *values in totals
    ]
    at = (RUN_CASE.c.run_id == run_id) & (RUN_CASE.c.case_index == bindparam("at_case_index"))
    execute_many(connection, update(RUN_CASE).where(at), rows)


def _recount_metrics(connection: Connection, run_id: int, first: int = 0, end: int = _MOST_CASES) -> None:
    value = SCORE.c.value
    sums = [func.count(), _count(SCORE.c.passed.is_(True)), func.sum(value), func.sum(value * value)]
    names = ["run_id", "case_index", "metric"]
    key = [SCORE.c[name] for name in names]
    of_scores, of_metrics = (
        (table.c.run_id == run_id) & (table.c.case_index >= first) & (table.c.case_index < end)
        for table in (SCORE, CASE_METRIC)
    )
    totals = select(*key, *sums, func.min(value), func.max(value)).where(of_scores).group_by(*key)
    connection.execute(delete(CASE_METRIC).where(of_metrics))
    connection.execute(insert(CASE_METRIC).from_select([*names, *SUMS, "low", "high"], totals))


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)
