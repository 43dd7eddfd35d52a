"""Totals of a run over its cases: kept with each result, they equal those that are counted from the rows, exactly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any, get_args

import pytest
from sqlalchemy import select, update
from tests.killed_steps import kill_at_each_statement
from tests.store.conftest import select_rows

from evaldesk.model import TrialResult, Verdict
from evaldesk.model.stored import CaseFilter
from evaldesk.statistics.intervals import score_interval
from evaldesk.store import Store
from evaldesk.store.runs import run_queries, totals
from evaldesk.store.runs.recounting import add_totals
from evaldesk.store.tables.runs import CASE_METRIC, RUN_CASE, RUN_METRIC, RUN_OUTCOME

Plan = Callable[..., int]
End = Callable[..., TrialResult]

VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "errored", "unscored")
VALUES = (0.0, 1.0, 0.1, 1 / 3, 0.7000000000000001, 2.5e-9, 1e6, -4.0)


@pytest.mark.parametrize("seed", range(4))
def test_totals_equal_those_of_the_rows_after_any_sequence(store: Store, plan: Plan, end: End, seed: int) -> None:
    chance = random.Random(seed)
    runs = [plan(n_cases=6, n=3, errors_are_failures=bool(seed % 2)), plan(n_cases=90, n=1)]

    for step in range(40):
        run = chance.choice(runs)
        _act(store, chance, run, end)
        if step == 20:
            with store._database.writing() as connection:
                totals.forget(connection, runs[0])  # as a run of an earlier version, which goes on
        if step == 30:
            store.runs.add_totals()

    store.runs.delete(runs[0])
    store.runs.restore(runs[0])
    for run in runs:
        assert _kept(store, run) == _counted(store, run)
        _check_figures(store, run)


def test_a_step_that_is_killed_at_any_statement_changes_nothing(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=3, n=2)
    store.runs.record([end(run, 0, 0, "passed", values={"match": 0.1}), end(run, 1, 0, "errored")])
    results = [end(run, case, 1, "failed", values={"match": 0.3}) for case in range(3)]
    before = _kept(store, run)

    def after_kill() -> None:
        assert _kept(store, run) == before == _counted(store, run)

    n_calls = kill_at_each_statement(store._database._writer, lambda: store.runs.record(results), after_kill)

    assert n_calls > 8
    assert _kept(store, run) == _counted(store, run) != before


def test_an_earlier_run_gets_its_totals_in_steps(
    store: Store, plan: Plan, end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "CASES_AT_ONCE", 4)
    chance = random.Random(3)
    run = plan(n_cases=11, n=2)
    with store._database.writing() as connection:
        totals.forget(connection, run)
        connection.execute(update(RUN_CASE).values(worst=None))
    n_steps = 0

    for _ in range(4):
        _act(store, chance, run, end, may_retry=False)
        with store._database.writing() as connection:
            n_steps += add_totals(connection, run)
    _act(store, chance, run, end, may_retry=False)

    assert n_steps == 2
    assert _kept(store, run) == _counted(store, run)


def test_pages_of_the_worst_cases_are_the_same_with_and_without_totals(store: Store, plan: Plan, end: End) -> None:
    chance = random.Random(5)
    run = plan(n_cases=60, n=4)
    for _ in range(60):
        _act(store, chance, run, end, may_retry=False)
    filters = [None, *get_args(CaseFilter)]

    by_index = [_pages(store, run, only) for only in filters]
    with store._database.writing() as connection:
        totals.forget(connection, run)
    by_rows = [_pages(store, run, only) for only in filters]

    assert by_index == by_rows
    assert len(by_index[0]) == 60


def test_the_worst_cases_of_a_large_run_are_found_by_the_index(store: Store, plan: Plan, database: Path) -> None:
    """Of SQLite, whose planner does not look at the size of the table as that of PostgreSQL does."""
    query = run_queries._page_query("worst", None, False, is_continued=True, is_indexed=True)
    values = {"run_id": plan(), "limit": 50, "place_0": 0.0, "place_1": 0.0, "place_2": 1.0}

    with store._database.reading() as connection:
        compiled = query.compile(connection)
        given = tuple((compiled.params | values)[name] for name in compiled.positiontup)
    with closing(connect(database)) as file:
        rows = file.execute(f"EXPLAIN QUERY PLAN {compiled}", given).fetchall()

    plan_words = " ".join(str(row[-1]) for row in rows)
    assert "ix_run_case_worst" in plan_words
    assert "TEMP B-TREE" not in plan_words


def test_sums_of_any_finite_scores_are_exact() -> None:
    chance = random.Random(1)
    rows = [_case_totals(chance.choice([5e-324, 1e100, -1e100, 0.1, 1 / 3, 1.0]), n) for n in range(1, 40)]

    there = totals.MetricTotals().with_rows((), rows)
    back = there.with_rows(rows[1:], ())

    assert there.with_rows(rows, ()).moments == (0,) * 13
    assert (back.n, back.mean) == (1, rows[0].total)
    assert back.cluster(2) == back.cluster(3) == back.cluster(4) == 0.0


def _case_totals(total: float, n: int) -> totals.CaseTotals:
    return totals.CaseTotals(n, 0, total, min(total * total, 1e200), total, total)


def _pages(store: Store, run: int, only: CaseFilter | None) -> list[int]:
    found, after = [], ""
    while rows := store.runs.case_rows(run, sort="worst", only=only, after=after, limit=7):
        found += [row.case_index for row in rows]
        after = rows[-1].cursor
    return found


@pytest.mark.parametrize(("n_kinds", "n_shown", "are_all"), [(2, 2, True), (3, 0, True), (4, 0, True), (5, 0, False)])
def test_kinds_of_cases_are_shown_up_to_one_limit_and_counted_up_to_another(
    store: Store, plan: Plan, end: End, monkeypatch: pytest.MonkeyPatch, n_kinds: int, n_shown: int, are_all: bool
) -> None:
    monkeypatch.setattr(totals, "MAX_KINDS", 2)
    monkeypatch.setattr(totals, "KINDS_KEPT", 4)
    run = plan(n_cases=n_kinds, n=1)

    store.runs.record([end(run, case, 0, "passed", values={"match": case / 8}) for case in range(n_kinds)])

    with store._database.writing() as connection:
        found = {row.metric: (len(row.kinds), has_all) for row, has_all in totals.metric_rows(connection, run)}
    assert found["match"] == (n_shown, are_all)


def _act(store: Store, chance: random.Random, run: int, end: End, *, may_retry: bool = True) -> None:
    if may_retry and chance.random() < 0.1:
        store.runs.retry_errored(run)
        return
    summary = store.runs.summary(run)
    store.runs.record(
        [_result(chance, run, summary.n_cases, summary.config.n, end) for _ in range(chance.randint(1, 9))]
    )


def _result(chance: random.Random, run: int, n_cases: int, n: int, end: End) -> TrialResult:
    values = {name: chance.choice(VALUES) for name in ("match", "judge") if chance.random() < 0.8}
    fields: dict[str, Any] = {"values": values, "attempt": chance.randint(1, 3)}
    if chance.random() < 0.1:
        fields["status"] = "cancelled"
    return end(run, chance.randrange(n_cases), chance.randrange(n), chance.choice(VERDICTS), **fields)


def _kept(store: Store, run: int) -> tuple[Any, ...]:
    outcomes = select_rows(store, select(RUN_OUTCOME).where(RUN_OUTCOME.c.run_id == run))
    metrics = select_rows(store, select(RUN_METRIC).where(RUN_METRIC.c.run_id == run))
    return (
        {tuple(row)[1:5]: row.n_cases for row in outcomes},
        {row.metric: _plain(totals._unpack(row)) for row in metrics if row.n},
    )


def _counted(store: Store, run: int) -> tuple[Any, ...]:
    cases = select_rows(store, select(RUN_CASE).where(RUN_CASE.c.run_id == run))
    rows = select_rows(store, select(CASE_METRIC).where(CASE_METRIC.c.run_id == run))
    metrics = {
        row.metric: [totals.CaseTotals(*tuple(each)[3:]) for each in rows if each.metric == row.metric] for row in rows
    }
    return (
        Counter((row.n_passed, row.n_failed, row.n_errored, row.n_unscored) for row in cases),
        {name: _plain(totals.MetricTotals().with_rows((), each)) for name, each in metrics.items()},
    )


def _plain(held: totals.MetricTotals) -> tuple[Any, ...]:
    """What the totals say, whatever the unit of their sums."""
    figures = (held.mean, held.squares, *(held.cluster(power) for power in (2, 3, 4)))
    return held.n, held.n_passed, held.n_cases, held.low, held.high, figures, held.kinds


def _check_figures(store: Store, run: int) -> None:
    """The figures of the page, from totals and from rows."""
    by_totals = store.runs.metric_rows(run), store.runs.outcome_counts(run), store.runs.case_counts(run)
    with store._database.writing() as connection:
        totals.forget(connection, run)
    by_rows = store.runs.metric_rows(run), store.runs.outcome_counts(run), store.runs.case_counts(run)

    assert by_totals[1:] == by_rows[1:]
    for kept, counted in zip(by_totals[0], by_rows[0], strict=True):
        names = ("n", "n_passed", "n_cases", "low", "high", "kinds", "threshold")
        assert [getattr(kept, name) for name in names] == [getattr(counted, name) for name in names]
        for name in ("mean", "squares", "cluster_squares", "cluster_cubes", "cluster_fourths"):
            assert getattr(kept, name) == pytest.approx(getattr(counted, name), rel=1e-9, abs=1e-6)
        low, high = score_interval(kept, -4.0, 1e6), score_interval(counted, -4.0, 1e6)
        assert (low is None) == (high is None)
        if low and high:
            assert (low.low, low.high) == pytest.approx((high.low, high.high), rel=1e-6, abs=1e-6)
