"""Write results of trials, and keep every total up to date in the same transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, func, select, update

from evaldesk.model import TrialResult
from evaldesk.store.clock import Clock
from evaldesk.store.database import execute_many, upsert
from evaldesk.store.runs.contribution import COUNTERS, Values, counters, outcome, scores, trial_key
from evaldesk.store.runs.totals import add_errors, add_scores
from evaldesk.store.tables import RUN, RUN_CASE, SCORE, STRIP_OF, TRANSCRIPT, TRIAL

Key: TypeAlias = tuple[int, int, int]


def record(connection: Connection, results: Sequence[tuple[TrialResult, Values]], clock: Clock) -> int:
    """Write results, each with its transcript row, and return how many counted.

    A result does not count when its trial has one already, or has been given to a later attempt; its content is kept as
    evidence. One for a trial that does not exist, its run deleted meanwhile, is dropped.
    """
    counted, late = _sort(results, _to_do(connection, (result for result, _ in results)))
    rows = [trial_key(result) | outcome(result) for result, _ in counted]
    done = [row for row in rows if row["verdict"] is not None]
    values = [score for result, _ in counted if result.status != "cancelled" for score in scores(result)]

    execute_many(connection, _UPDATE_TRIAL, [_at(row, "trial_index") | {"recorded_at": clock()} for row in rows])
    execute_many(connection, SCORE.insert(), values)
    _keep_transcripts(connection, [row for _, row in counted], [row for _, row in late])
    execute_many(connection, _ADD_TO_CASE, [_at(row) | _gain([row]) | _letter(row) for row in done])
    add_scores(connection, values)
    add_errors(connection, [row for row in done if row["verdict"] == "errored"])
    _add_to_runs(connection, rows, Counter(result.run_id for result, _ in late), clock)
    return len(counted)


def _to_do(connection: Connection, results: Iterable[TrialResult]) -> dict[Key, tuple[bool, int]]:
    """Whether each trial is to do, and its attempt."""
    columns = [sorted(set(column)) for column in zip(*map(_key, results), strict=True)]
    rows = connection.execute(_FIND_TRIALS, dict(zip(("runs", "cases", "trials"), columns, strict=True)))
    return {(run, case, trial): (verdict is None, attempt) for run, case, trial, verdict, attempt in rows}


def _sort(
    results: Sequence[tuple[TrialResult, Values]], trials: dict[Key, tuple[bool, int]]
) -> tuple[list[tuple[TrialResult, Values]], list[tuple[TrialResult, Values]]]:
    counted, late = [], []
    for result, transcript in results:
        if _key(result) not in trials:
            continue
        is_to_do, attempt = trials[_key(result)]
        if not is_to_do or result.attempt < attempt:
            late.append((result, transcript))
            continue
        counted.append((result, transcript))
        trials[_key(result)] = (result.status == "cancelled", result.attempt)
    return counted, late


def _keep_transcripts(connection: Connection, counted: Sequence[Values], late: Sequence[Values]) -> None:
    execute_many(connection, _replace_transcript(connection.dialect.name), counted)
    execute_many(connection, _keep_transcript(connection.dialect.name), late)


@cache
def _replace_transcript(dialect: str) -> Any:
    statement = upsert(dialect, TRANSCRIPT)
    fresh = {"codec": statement.excluded.codec, "data": statement.excluded.data}
    return statement.on_conflict_do_update(index_elements=list(TRANSCRIPT.primary_key), set_=fresh)


@cache
def _keep_transcript(dialect: str) -> Any:
    return upsert(dialect, TRANSCRIPT).on_conflict_do_nothing()


def _add_to_runs(connection: Connection, rows: Sequence[Values], n_late: Counter[int], clock: Clock) -> None:
    run_ids = {row["run_id"] for row in rows} | set(n_late)
    ticks = connection.execute(_FIND_TICKS, {"run_ids": list(run_ids)}).all()
    for run_id, ticked_at in ticks:
        now = clock()
        done = [row for row in rows if row["run_id"] == run_id and row["verdict"] is not None]
        ms = clock.lap(run_id, ticked_at, now) if ticked_at else None
        time = {"add_active_ms": ms or 0.0, "ticked_at": ticked_at if ms is None else now}
        gain = _gain(done) | time | {"add_n_duplicates": n_late[run_id]}
        connection.execute(_ADD_TO_RUN, {"at_run_id": run_id} | gain)


def _key(result: TrialResult) -> Key:
    return result.run_id, result.case_index, result.trial_index


def _at(row: Values, *names: str) -> Values:
    """`row` with its key under the names that an UPDATE looks for."""
    keys = ("run_id", "case_index", *names)
    return {f"at_{name}": row[name] for name in keys} | {name: row[name] for name in row if name not in keys}


def _gain(rows: Sequence[Values]) -> Values:
    gains = [counters(row) for row in rows]
    return {f"add_{name}": sum(gain[name] for gain in gains) for name in COUNTERS}


def _letter(row: Values) -> Values:
    return {"letter": STRIP_OF[row["verdict"]], "n_before": row["trial_index"], "after": row["trial_index"] + 2}


_TRIAL_KEY = (TRIAL.c.run_id, TRIAL.c.case_index, TRIAL.c.trial_index)
# Column by column and so a few too many: for a list of whole keys SQLite reads the table from end to end.
_FIND_TRIALS = select(*_TRIAL_KEY, TRIAL.c.verdict, TRIAL.c.attempt).where(
    TRIAL.c.run_id.in_(bindparam("runs", expanding=True)),
    TRIAL.c.case_index.in_(bindparam("cases", expanding=True)),
    TRIAL.c.trial_index.in_(bindparam("trials", expanding=True)),
)
_FIND_TICKS = select(RUN.c.id, RUN.c.ticked_at).where(RUN.c.id.in_(bindparam("run_ids", expanding=True)))
_UPDATE_TRIAL = update(TRIAL).where(
    TRIAL.c.run_id == bindparam("at_run_id"),
    TRIAL.c.case_index == bindparam("at_case_index"),
    TRIAL.c.trial_index == bindparam("at_trial_index"),
)
_ADD_TO_CASE = (
    update(RUN_CASE)
    .where(RUN_CASE.c.run_id == bindparam("at_run_id"), RUN_CASE.c.case_index == bindparam("at_case_index"))
    .values({name: RUN_CASE.c[name] + bindparam(f"add_{name}") for name in COUNTERS})
    .values(
        strip=func.substr(RUN_CASE.c.strip, 1, bindparam("n_before"))
        .concat(bindparam("letter"))
        .concat(func.substr(RUN_CASE.c.strip, bindparam("after")))
    )
)
_ADD_TO_RUN = (
    update(RUN)
    .where(RUN.c.id == bindparam("at_run_id"))
    .values({name: RUN.c[name] + bindparam(f"add_{name}") for name in (*COUNTERS, "active_ms", "n_duplicates")})
)
