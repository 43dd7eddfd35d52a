"""What comparing and explaining ask of a run beyond its page: all cases, times and scores of its trials."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, func, select

from evaldesk.store.run_queries import run_row
from evaldesk.store.tables import CASE_METRIC, RUN_CASE, SCORE, TRIAL
from evaldesk.store.values import CaseOutcome

_C = RUN_CASE.c
_SHOWN = tuple(name for name in CaseOutcome.__dataclass_fields__ if name != "means")


def case_outcomes(connection: Connection, run_id: int) -> list[CaseOutcome]:
    """Every case of a run, in its order, from the totals: no trial is read."""
    run_row(connection, run_id)
    held = CASE_METRIC.c
    means: dict[int, dict[str, float]] = defaultdict(dict)
    scored = select(held.case_index, held.metric, held.total / held.n).where(held.run_id == run_id)
    for case_index, metric, mean in connection.execute(scored):
        means[case_index][metric] = mean
    rows = select(*(_C[name] for name in _SHOWN)).where(_C.run_id == run_id).order_by(_C.case_index)
    values: list[list[Any]] = [[*row, means[row.case_index]] for row in connection.execute(rows)]
    return [CaseOutcome(*each) for each in values]


def median_ms(connection: Connection, run_id: int) -> float | None:
    """The middle of the trials' times in milliseconds; None where no time is known, as of an imported run."""
    run_row(connection, run_id)
    is_timed = (TRIAL.c.run_id == run_id) & TRIAL.c.verdict.is_not(None) & (TRIAL.c.duration_ms > 0)
    done = select(TRIAL.c.duration_ms).where(is_timed).subquery()
    n: int = connection.scalar(select(func.count()).select_from(done)) or 0
    if not n:
        return None
    middle = select(done.c.duration_ms).order_by(done.c.duration_ms).offset((n - 1) // 2).limit(2 - n % 2)
    values = [float(value) for value in connection.scalars(middle)]
    return sum(values) / len(values)


def score_counts(connection: Connection, run_id: int) -> dict[str, list[tuple[float, int]]]:
    """For each metric its values in order, each with how many trials have it."""
    run_row(connection, run_id)
    held = SCORE.c
    rows = select(held.metric, held.value, func.count()).where(held.run_id == run_id)
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for metric, value, n in connection.execute(rows.group_by(held.metric, held.value).order_by(held.value)):
        found[metric].append((value, n))
    return found
