"""Totals of a run, changed with each result in its transaction: outcomes of cases, each metric, and labels.

The sums over cases are exact: every stored number is a whole number of some power of a half, and is added up as such.
So they do not depend on the order of the results, and equal sums that are counted from the rows.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from math import comb
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, bindparam, case, delete, false, func, insert, select, update

from evaldesk.model.stored import CaseScores, MetricRow
from evaldesk.statistics.intervals import MAX_KINDS, speaks_by_sums
from evaldesk.store.database import execute_many
from evaldesk.store.tables.columns import adding
from evaldesk.store.tables.runs import CASE_METRIC, LABEL, LABEL_TOTAL, RUN, RUN_CASE, RUN_METRIC, RUN_OUTCOME, TRIAL
from evaldesk.wire import from_json

Outcome: TypeAlias = tuple[int, int, int, int]
"""The trials of a case that passed, failed, errored and were not scored."""

OUTCOME = ("n_passed", "n_failed", "n_errored", "n_unscored")
CASES_AT_ONCE = 1_000
"""Cases of an older run that one transaction adds to its totals."""
KINDS_KEPT = 4 * MAX_KINDS
"""More kinds than are drawn, since a run of many trials has some only on its way."""
_MOMENTS = tuple((power - by, by) for power in range(1, 5) for by in range(power + 1) if power > 1 or by == 0)


def worst_of(outcome: Sequence[ColumnElement[Any]], n_scored: ColumnElement[Any]) -> ColumnElement[Any]:
    """The place of a case among the worst: its pass rate; unscored cases and those still to do come after all others.

    Nothing but errors is as bad as nothing passed. `n_scored` is the number of trials that are in the pass rate.
    """
    passed, failed, errored, unscored = outcome
    share = passed * 1.0 / func.nullif(n_scored, 0)
    n_done = passed + failed + errored + unscored
    return func.coalesce(share, case((errored > 0, 0.0), (n_done > 0, 2.0), else_=3.0))


@dataclass(frozen=True, slots=True)
class CaseTotals:
    """The scores of one metric in one case, as they are stored."""

    n: int
    n_passed: int
    total: float
    total_squares: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of cases of one run: the outcome of each, and its metrics."""

    outcomes: Mapping[int, Outcome] = field(default_factory=dict)
    metrics: Mapping[tuple[str, int], CaseTotals] = field(default_factory=dict)


def read_rows(connection: Connection, cases: Mapping[int, Iterable[int]]) -> dict[int, Rows]:
    """The rows of these cases, by run; `cases` has the indexes of each run."""
    return {run_id: _rows(connection, run_id, sorted(set(indexes))) for run_id, indexes in cases.items()}


def carry(connection: Connection, before: Mapping[int, Rows]) -> None:
    """Bring the totals up to date after a change of the rows that were read `before`."""
    now = read_rows(connection, {run_id: rows.outcomes for run_id, rows in before.items()})
    run_rows = connection.execute(_FIND_N_TOTALLED, {"run_ids": list(before)})
    n_totalled = {row.id: row.n_totalled for row in run_rows}
    for run_id, rows in before.items():
        n = n_totalled.get(run_id, 0)
        _change(connection, run_id, _below(rows, n), _below(now[run_id], n))


def add_planned(connection: Connection, run_id: int, n_cases: int) -> None:
    """Count cases that were added to a run; nothing of them is played."""
    _add_outcomes(connection, run_id, Counter({(0, 0, 0, 0): n_cases}))


def forget(connection: Connection, run_id: int) -> None:
    """Let the totals of a run be counted from the start by `add_some`."""
    for table in (RUN_METRIC, RUN_OUTCOME):
        connection.execute(delete(table).where(table.c.run_id == run_id))
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(n_totalled=0))


def add_some(connection: Connection, run_id: int, errors_are_failures: bool) -> bool:
    """Add the next cases of an older run to its totals; False when there are no more."""
    row = connection.execute(select(RUN.c.n_totalled, RUN.c.n_cases).where(RUN.c.id == run_id)).first()
    if row is None or row.n_totalled >= row.n_cases:
        return False
    end = row.n_totalled + CASES_AT_ONCE
    columns = RUN_CASE.c
    some = (columns.run_id == run_id) & (columns.case_index >= row.n_totalled) & (columns.case_index < end)
    n_scored = columns.n_passed + columns.n_failed + (columns.n_errored if errors_are_failures else 0)
    worst = worst_of([columns[name] for name in OUTCOME], n_scored)
    connection.execute(update(RUN_CASE).where(some).values(worst=worst))
    added_rows = _rows(connection, run_id, range(row.n_totalled, end))
    _change(connection, run_id, Rows(), added_rows)
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(n_totalled=min(end, row.n_cases)))
    return bool(end < row.n_cases)


def outcome_rows(connection: Connection, run_id: int) -> list[tuple[Outcome, int]]:
    """The number of cases with each outcome."""
    columns = RUN_OUTCOME.c
    rows = connection.execute(select(RUN_OUTCOME).where(columns.run_id == run_id))
    return [((row.n_passed, row.n_failed, row.n_errored, row.n_unscored), row.n_cases) for row in rows]


def metric_rows(connection: Connection, run_id: int) -> list[tuple[MetricRow, bool]]:
    """The scores of each metric, without its threshold; and whether `kinds` are all its kinds of cases."""
    rows = connection.execute(_FIND_METRICS, {"run_id": run_id})
    return [_metric_row(row.metric, _unpack(row)) for row in rows]


def case_totals(connection: Connection, run_id: int) -> dict[int, dict[str, CaseTotals]]:
    """The scores of each metric in each case, by the index of the case."""
    by_case: dict[int, dict[str, CaseTotals]] = {}
    for metric, index, *values in connection.execute(_FIND_ALL_CASE_METRICS, {"run_id": run_id}):
        by_case.setdefault(index, {})[metric] = CaseTotals(*values)
    return by_case


def joined_metric_row(metric: str, cases: Sequence[CaseTotals], threshold: float | None) -> MetricRow:
    """The scores of a metric over `cases`, as `metric_rows` of a run of these cases has them."""
    row, has_kinds = _metric_row(metric, MetricTotals().with_rows((), cases))
    if speaks_by_sums(row.n_cases, row.cluster_squares, row.cluster_cubes):
        return replace(row, threshold=threshold, kinds=())
    if not has_kinds:
        kinds = Counter((each.n, each.total) for each in cases)
        row = replace(row, kinds=_sort_kinds(kinds) if len(kinds) <= MAX_KINDS else ())
    return replace(row, threshold=threshold)


def _metric_row(metric: str, totals: MetricTotals) -> tuple[MetricRow, bool]:
    kinds = () if totals.kinds is None or len(totals.kinds) > MAX_KINDS else _sort_kinds(totals.kinds)
    row = MetricRow(
        metric=metric,
        threshold=None,
        n=totals.n,
        n_passed=totals.n_passed,
        n_cases=totals.n_cases,
        mean=totals.mean,
        low=totals.low,
        high=totals.high,
        squares=totals.squares,
        cluster_squares=totals.cluster(2),
        cluster_cubes=totals.cluster(3),
        cluster_fourths=totals.cluster(4),
        kinds=kinds,
    )
    return row, totals.kinds is not None


def _sort_kinds(kinds: Mapping[tuple[int, float], int]) -> tuple[CaseScores, ...]:
    return tuple((n, total, kinds[n, total]) for n, total in sorted(kinds))


@dataclass(frozen=True, slots=True)
class MetricTotals:
    """The scores of one metric over cases.

    `moments` are the sums over cases of total**i * n**j for (i, j) in _MOMENTS, in units of 2**-(scale * i);
    `squares_sum` is that of the squares in units of 2**-square_scale. `kinds` counts the cases by (n, total), None once
    there were too many kinds.
    """

    n: int = 0
    n_passed: int = 0
    n_cases: int = 0
    low: float = math.inf
    high: float = -math.inf
    # Whole numbers, so that the sums are exact in any order: decision 094.
    scale: int = 0
    moments: tuple[int, ...] = (0,) * len(_MOMENTS)
    square_scale: int = 0
    squares_sum: int = 0
    kinds: Mapping[tuple[int, float], int] | None = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean of all values."""
        return _quotient(self.moments[0], self.n << self.scale)

    @property
    def squares(self) -> float:
        """The sum of squares around the mean."""
        if self.low == self.high:
            return 0.0
        # The stored squares are rounded, so equal values could leave a trace below 0.
        common = max(self.square_scale, 2 * self.scale)
        squares = self.squares_sum << (common - self.square_scale)
        mean = self.moments[0] ** 2 << (common - 2 * self.scale)
        return max(_quotient(squares * self.n - mean, self.n << common), 0.0)

    def cluster(self, power: int) -> float:
        """The sum over cases of (total - n * mean)**power."""
        first = self.moments[0]
        summed = 0
        for (of_total, of_n), power_sum in zip(_MOMENTS, self.moments, strict=True):
            if of_total + of_n == power:
                summed += comb(power, of_n) * power_sum * (-first) ** of_n * self.n ** (power - of_n)
        return _quotient(summed, self.n**power << (self.scale * power))

    def with_rows(self, out: Sequence[CaseTotals], into: Sequence[CaseTotals]) -> MetricTotals:
        """The totals with the rows `out` taken out and those of `into` added."""
        scale = max(self.scale, *(_scale(row.total) for row in (*out, *into)))
        square_scale = max(self.square_scale, *(_scale(row.total_squares) for row in (*out, *into)))
        moments = [
            power_sum << (i * (scale - self.scale)) for (i, _), power_sum in zip(_MOMENTS, self.moments, strict=True)
        ]
        squares = self.squares_sum << (square_scale - self.square_scale)
        for sign, rows in ((-1, out), (1, into)):
            for row in rows:
                total = _in_units(row.total, scale)
                squares += sign * _in_units(row.total_squares, square_scale)
                for at, (i, j) in enumerate(_MOMENTS):
                    moments[at] += sign * total**i * row.n**j
        return replace(
            self,
            n=self.n + sum(row.n for row in into) - sum(row.n for row in out),
            n_passed=self.n_passed + sum(row.n_passed for row in into) - sum(row.n_passed for row in out),
            n_cases=self.n_cases + len(into) - len(out),
            low=min(self.low, *(row.low for row in into)) if into else self.low,
            high=max(self.high, *(row.high for row in into)) if into else self.high,
            scale=scale,
            moments=tuple(moments),
            square_scale=square_scale,
            squares_sum=squares,
            kinds=_changed_kinds(self.kinds, out, into),
        )


def _changed_kinds(
    kinds: Mapping[tuple[int, float], int] | None, out: Sequence[CaseTotals], into: Sequence[CaseTotals]
) -> Mapping[tuple[int, float], int] | None:
    if kinds is None:
        return None
    counter = Counter(kinds)
    counter.update((row.n, row.total) for row in into)
    counter.subtract((row.n, row.total) for row in out)
    new_kinds = {kind: times for kind, times in counter.items() if times}
    return new_kinds if len(new_kinds) <= KINDS_KEPT else None


def _scale(value: float) -> int:
    return value.as_integer_ratio()[1].bit_length() - 1


def _in_units(value: float, scale: int) -> int:
    """The value in units of 2**-scale."""
    above, below = value.as_integer_ratio()
    return above << (scale - below.bit_length() + 1)


def _quotient(above: int, below: int) -> float:
    try:
        return above / below
    except OverflowError:
        return math.inf if above > 0 else -math.inf


def _rows(connection: Connection, run_id: int, indexes: Sequence[int]) -> Rows:
    if not indexes:
        return Rows()
    at = {"run_id": run_id, "cases": list(indexes)}
    outcomes = {
        index: (passed, failed, errored, unscored)
        for index, passed, failed, errored, unscored in connection.execute(_FIND_OUTCOMES, at)
    }
    metrics = {
        (metric, index): CaseTotals(*values) for metric, index, *values in connection.execute(_FIND_CASE_METRICS, at)
    }
    return Rows(outcomes, metrics)


def _below(rows: Rows, end: int) -> Rows:
    if all(index < end for index in rows.outcomes):
        return rows
    outcomes = {index: outcome for index, outcome in rows.outcomes.items() if index < end}
    return Rows(outcomes, {key: totals for key, totals in rows.metrics.items() if key[1] < end})


def _change(connection: Connection, run_id: int, before: Rows, now: Rows) -> None:
    gains = Counter(now.outcomes.values())
    gains.subtract(before.outcomes.values())
    _add_outcomes(connection, run_id, gains)
    keys = now.metrics.keys() | before.metrics.keys()
    changed_keys = sorted(key for key in keys if now.metrics.get(key) != before.metrics.get(key))
    if changed_keys:
        _change_metrics(connection, run_id, changed_keys, before, now)


def _add_outcomes(connection: Connection, run_id: int, gains: Mapping[Outcome, int]) -> None:
    rows = [
        {"run_id": run_id, "n_cases": n} | dict(zip(OUTCOME, outcome, strict=True)) for outcome, n in gains.items() if n
    ]
    execute_many(connection, adding(connection.dialect.name, RUN_OUTCOME, "n_cases"), rows)
    if any(row["n_cases"] < 0 for row in rows):
        connection.execute(_DROP_EMPTY, {"at_run_id": run_id})


def _change_metrics(
    connection: Connection, run_id: int, changed_keys: Sequence[tuple[str, int]], before: Rows, now: Rows
) -> None:
    totals_by_metric = {row.metric: _unpack(row) for row in connection.execute(_FIND_METRICS, {"run_id": run_id})}
    for metric, keys in groupby(changed_keys, key=lambda key: key[0]):
        own = list(keys)
        out = [before.metrics[key] for key in own if key in before.metrics]
        into = [now.metrics[key] for key in own if key in now.metrics]
        totals = totals_by_metric.get(metric, MetricTotals()).with_rows(out, into)
        sums = [totals.scale, totals.square_scale, totals.squares_sum, *totals.moments]
        kinds = None if totals.kinds is None else json.dumps(_sort_kinds(totals.kinds), separators=(",", ":"))
        columns = {name: getattr(totals, name) for name in ("n", "n_passed", "n_cases", "low", "high")}
        values = columns | {"sums": " ".join(f"{each:x}" for each in sums), "kinds": kinds}
        key = {"run_id": run_id, "metric": metric}
        if metric in totals_by_metric:
            connection.execute(_KEEP_METRIC, values | {"at_run_id": run_id, "at_metric": metric})
        else:
            connection.execute(insert(RUN_METRIC), key | values)


def mean_score(row: Any) -> float:
    """The mean score of a row of `run_metric` with at least one score."""
    return _unpack(row).mean


def _unpack(row: Any) -> MetricTotals:
    scale, square_scale, squares_sum, *moments = (int(each, 16) for each in row.sums.split())
    kinds = None if row.kinds is None else {(n, total): times for n, total, times in json.loads(row.kinds)}
    return MetricTotals(
        n=row.n,
        n_passed=row.n_passed,
        n_cases=row.n_cases,
        low=row.low,
        high=row.high,
        scale=scale,
        moments=tuple(moments),
        square_scale=square_scale,
        squares_sum=squares_sum,
        kinds=kinds,
    )


_C, _M = RUN_CASE.c, CASE_METRIC.c
_CASE_COLUMNS: list[Column[Any]] = [_C.case_index, *(_C[name] for name in OUTCOME)]
_COLUMNS_OF_METRIC: list[Column[Any]] = [_M.metric, _M.case_index, *(_M[each.name] for each in fields(CaseTotals))]
_IN_LIST: ColumnElement[Any] = bindparam("cases", expanding=True)
_FIND_OUTCOMES = select(*_CASE_COLUMNS).where(_C.run_id == bindparam("run_id"), _C.case_index.in_(_IN_LIST))
_FIND_CASE_METRICS = select(*_COLUMNS_OF_METRIC).where(_M.run_id == bindparam("run_id"), _M.case_index.in_(_IN_LIST))
_FIND_ALL_CASE_METRICS = select(*_COLUMNS_OF_METRIC).where(_M.run_id == bindparam("run_id"))
_FIND_N_TOTALLED = select(RUN.c.id, RUN.c.n_totalled).where(RUN.c.id.in_(bindparam("run_ids", expanding=True)))
_FIND_METRICS = select(RUN_METRIC).where(RUN_METRIC.c.run_id == bindparam("run_id"))
_KEEP_METRIC = update(RUN_METRIC).where(
    RUN_METRIC.c.run_id == bindparam("at_run_id"), RUN_METRIC.c.metric == bindparam("at_metric")
)
_DROP_EMPTY = delete(RUN_OUTCOME).where(RUN_OUTCOME.c.run_id == bindparam("at_run_id"), RUN_OUTCOME.c.n_cases == 0)


class _Rule(msgspec.Struct):
    """The part of a run's configuration that its totals depend on."""

    errors_are_failures: bool = False


def are_errors_failures(config: str) -> bool:
    """Whether a run with this stored configuration counts errored trials as failed."""
    return from_json(config, _Rule).errors_are_failures


WHOLE_TRIAL = -1
_L = LABEL.c
DECIDED = ("passed", "failed")
OF_TRIAL = (
    (TRIAL.c.run_id == _L.run_id) & (TRIAL.c.case_index == _L.case_index) & (TRIAL.c.trial_index == _L.trial_index)
)
IS_DISAGREEMENT = func.coalesce(
    (_L.turn == WHOLE_TRIAL) & _L.verdict.in_(DECIDED) & TRIAL.c.verdict.in_(DECIDED) & (_L.verdict != TRIAL.c.verdict),
    false(),
)
_OF_LABEL = (
    _L.run_id,
    _L.labeller,
    func.coalesce(_L.verdict, "").label("verdict"),
    IS_DISAGREEMENT.label("is_disagreement"),
)


@contextmanager
def label_totals_carried(connection: Connection, trials: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Bring the totals of labels up to date with a change of these trials or of their labels."""
    if not trials:
        yield
        return
    before = _labels(connection, trials)
    yield
    gains = _labels(connection, trials)
    gains.subtract(before)
    names = [column.name for column in LABEL_TOTAL.primary_key]
    rows = [dict(zip(names, kind, strict=True)) | {"n": n} for kind, n in gains.items() if n]
    execute_many(connection, adding(connection.dialect.name, LABEL_TOTAL, "n"), rows)
    for run_id in {row["run_id"] for row in rows if row["n"] < 0}:
        connection.execute(delete(LABEL_TOTAL).where(LABEL_TOTAL.c.run_id == run_id, LABEL_TOTAL.c.n == 0))


def labelled(connection: Connection, trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of these trials whose run has a label."""
    run_ids = {trial["run_id"] for trial in trials}
    labelled_ids = set(
        connection.scalars(select(LABEL_TOTAL.c.run_id).where(LABEL_TOTAL.c.run_id.in_(run_ids)).distinct())
    )
    return [trial for trial in trials if trial["run_id"] in labelled_ids]


def _labels(connection: Connection, trials: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The labels of these trials by the key of their total, and of a few others: always of the same."""
    rows = select(*_OF_LABEL).select_from(LABEL.join(TRIAL, OF_TRIAL))
    for name in ("run_id", "case_index", "trial_index"):
        rows = rows.where(_L[name].in_(sorted({trial[name] for trial in trials})))
    return Counter((run_id, name, verdict, bool(is_dis)) for run_id, name, verdict, is_dis in connection.execute(rows))


def recount_labels(connection: Connection) -> None:
    """Count all totals of labels from the start."""
    connection.execute(delete(LABEL_TOTAL))
    labels = select(*_OF_LABEL).select_from(LABEL.join(TRIAL, OF_TRIAL)).subquery()
    key = [column.name for column in LABEL_TOTAL.primary_key]
    kinds = [labels.c[name] for name in key]
    rows = select(*kinds, func.count()).group_by(*kinds)
    connection.execute(insert(LABEL_TOTAL).from_select([*key, "n"], rows))
