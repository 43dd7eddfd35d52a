"""Totals of labels: kept with each label and each verdict, they equal those that are counted from the rows."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select
from tests.killed_steps import kill_at_each_statement
from tests.store.conftest import select_rows
from tests.store.older_schema import make_older

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model import TrialResult
from evaldesk.model.queues import GivenLabel, QueueDraft, QueueStratum
from evaldesk.model.stored import LabelFilter
from evaldesk.store import Store
from evaldesk.store.queues import moment_id
from evaldesk.store.recovery import recover
from evaldesk.store.runs.totals import WHOLE_TRIAL
from evaldesk.store.sqlite import writing_engine
from evaldesk.store.tables.runs import LABEL, LABEL_TOTAL, TRIAL

Plan = Callable[..., int]
End = Callable[..., TrialResult]
NAMES = ("jo", "sam", "", "%")
VERDICTS = ("passed", "failed", "unsure", None)
DECIDED = {"passed", "failed"}


@pytest.mark.parametrize("seed", range(3))
def test_totals_equal_those_of_the_rows_after_any_sequence(
    store: Store, plan: Plan, end: End, clock: Any, seed: int
) -> None:
    chance = random.Random(seed)
    runs = [plan(n_cases=4, n=2), plan(n_cases=3, n=2)]
    drafts = [QueueDraft(runs[0], (at, 0), runs[0], "failed") for at in range(4)]
    queue = store.queues.create([QueueStratum(runs[0], "failed", 4, 4)], drafts, "jo", is_blind=False)

    for _ in range(60):
        clock.move(seconds=1)
        _act(store, chance, runs, queue, end)
        assert _kept(store) == _counted(store)

    _check_figures(store, runs)
    store.runs.delete(runs[0])
    _check_figures(store, runs)
    store.runs.restore(runs[0])
    _check_figures(store, runs)


@pytest.mark.parametrize("n_labels", [0, 1])
@pytest.mark.parametrize("seen", [LabelFilter(), LabelFilter(verdict="passed"), LabelFilter(is_disagreement=True)])
def test_no_question_about_labels_looks_at_runs_without_one(
    database: Path, store: Store, plan: Plan, seen: LabelFilter, n_labels: int
) -> None:
    plan(n_cases=20, n=3)
    for at in range(n_labels):
        store.labels.put(1, (at, 0), None, "jo", "passed", "")
    few = _steps_of_labels(database, store, seen)
    for _ in range(40):
        plan(n_cases=20, n=3)

    assert _steps_of_labels(database, store, seen) <= few + 20


def _steps_of_labels(database: Path, store: Store, seen: LabelFilter) -> int:
    """The steps of SQLite for all that the page of labels asks, when it knows how large the tables are."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, values))

    engine = store._database._reader
    event.listen(engine, "before_cursor_execute", note)
    store.labels.list(seen)
    store.labels.pairs(None)
    store.labels.of_turns(None, 100)
    store.labels.count(seen)
    store.labels.labellers()
    event.remove(engine, "before_cursor_execute", note)
    steps = Counter[str]()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("ANALYZE")
        connection.commit()
    with closing(sqlite3.connect(database)) as connection:
        for statement, values in asked:
            connection.set_progress_handler(lambda: steps.update(("all",)), 1)
            connection.execute(statement, values).fetchall()
    return steps["all"]


def test_a_verdict_that_comes_after_its_label_is_killed_with_the_totals(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=2, n=1)
    store.labels.put(run, (0, 0), None, "jo", "passed", "")
    before = _kept(store)

    def after_kill() -> None:
        assert _kept(store) == before == _counted(store)

    n_calls = kill_at_each_statement(
        store._database._writer, lambda: store.runs.record([end(run, 0, 0, "failed")]), after_kill
    )

    assert n_calls > 3
    assert _kept(store) == _counted(store) == Counter({(run, "jo", "passed", True): 1})


def test_labels_of_before_are_counted_once(database: Path, tmp_path: Path, plan: Plan, end: End, store: Store) -> None:
    run = plan(n_cases=3, n=1)
    store.runs.record([end(run, 0, 0, "failed"), end(run, 1, 0, "passed"), end(run, 2, 0, "errored")])
    for case_index, turn, verdict in ((0, None, "passed"), (1, None, "passed"), (2, None, "failed"), (0, 0, "passed")):
        store.labels.put(run, (case_index, 0), turn, "jo", verdict, "")
    store.labels.put(run, (1, 0), None, "sam", None, "a note")
    expected = _counted(store)
    store.close()
    engine = writing_engine(database, foreign_keys="OFF")
    with engine.begin() as connection:
        make_older(connection, "0029", tmp_path)
    engine.dispose()

    with Store.open(database) as opened:
        assert _kept(opened) == expected != Counter()


def test_totals_are_made_again_in_a_recovered_database(database: Path, plan: Plan, end: End, store: Store) -> None:
    run = plan(n_cases=2, n=1)
    store.runs.record([end(run, 0, 0, "failed")])
    store.labels.put(run, (0, 0), None, "jo", "passed", "")
    store.labels.put(run, (1, 0), None, "sam", "unsure", "")
    expected = _kept(store)
    store.close()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE label_total SET n = 7")

    recover(database)

    with Store.open(database) as opened:
        assert _kept(opened) == _counted(opened) == expected


def _act(store: Store, chance: random.Random, runs: list[int], queue: int, end: End) -> None:
    run = chance.choice(runs)
    key = (chance.randrange(3), chance.randrange(2))
    name, verdict = chance.choice(NAMES), chance.choice(VERDICTS)
    turn = chance.choice((None, None, 0))
    what = chance.randrange(8)
    if what < 3:
        store.labels.put(run, key, turn, name, verdict, chance.choice(("", "a note")))
    elif what == 3:
        store.labels.remove(run, key, turn, name)
    elif what == 4:
        store.runs.record([end(run, *key, chance.choice(("passed", "failed", "errored", "unscored")))])
    elif what == 5:
        store.runs.retry_errored(run)
    elif what == 6:
        label = store.queues.items(queue, name)[place := chance.randrange(4)].label
        seen = moment_id(label.labelled_at) if label and chance.random() < 0.8 else 0
        given = [GivenLabel(place + 1, seen), GivenLabel(chance.randrange(4) + 1, 0)]
        with suppress(ConflictError):
            store.queues.give(queue, given, name, verdict or "passed", None, is_blind=False)
    else:
        with suppress(ConflictError, NotFoundError):
            store.queues.undo(queue, name)


def _kept(store: Store) -> Counter[tuple[Any, ...]]:
    rows = select_rows(store, select(LABEL_TOTAL))
    assert all(row.n > 0 for row in rows)
    return Counter({(row.run_id, row.labeller, row.verdict, row.is_disagreement): row.n for row in rows})


def _counted(store: Store) -> Counter[tuple[Any, ...]]:
    of_trials = {
        (row.run_id, row.case_index, row.trial_index): row.verdict for row in select_rows(store, select(TRIAL))
    }
    found: Counter[tuple[Any, ...]] = Counter()
    for row in select_rows(store, select(LABEL)):
        sides = {row.verdict, of_trials[row.run_id, row.case_index, row.trial_index]}
        found[row.run_id, row.labeller, row.verdict or "", row.turn == WHOLE_TRIAL and sides == DECIDED] += 1
    return found


def _check_figures(store: Store, runs: list[int]) -> None:
    """Each filter counts as many as it lists."""
    for run_id in (None, *runs):
        for name in (None, *NAMES):
            wanted = [LabelFilter(run_id, name, verdict) for verdict in VERDICTS]
            for each in (*wanted, LabelFilter(run_id, name, is_disagreement=True)):
                assert store.labels.count(each) == len(store.labels.list(each, limit=1000)), each
