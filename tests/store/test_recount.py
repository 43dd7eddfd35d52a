"""Totals kept while results come in equal a recount of trials and scores."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, select
from tests.store.conftest import select_rows

from evaldesk.model import ErrorRecord, TrialResult, Usage, Verdict
from evaldesk.store import Store
from evaldesk.store.runs import planning
from evaldesk.store.runs.recording import normalised
from evaldesk.store.runs.recounting import recount
from evaldesk.store.tables.runs import SCORE, TRIAL

Plan = Callable[..., int]
End = Callable[..., TrialResult]

VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "errored", "unscored")


@pytest.mark.parametrize("seed", range(3))
def test_totals_equal_a_recount_after_any_sequence(store: Store, plan: Plan, end: End, seed: int) -> None:
    chance = random.Random(seed)
    runs = [plan(n_cases=4, n=3), plan(n_cases=2, n=5)]

    for _ in range(40):
        _act(store, chance, chance.choice(runs), end)

    for run in runs:
        assert _totals(store, run) == _recounted(store, run)
        before = _totals(store, run)
        with store._database.writing() as connection:
            recount(connection, run)
        assert _totals(store, run) == before


def _act(store: Store, chance: random.Random, run: int, end: End) -> None:
    if chance.random() < 0.1:
        store.runs.retry_errored(run)
        return
    summary = store.runs.summary(run)
    n_cases, n = summary.n_cases, summary.config.n
    store.runs.record([_result(chance, run, n_cases, n, end) for _ in range(chance.randint(1, 4))])


def _result(chance: random.Random, run: int, n_cases: int, n: int, end: End) -> TrialResult:
    # Eighths add up exactly in any order, so that totals can be compared without tolerance.
    values = {name: chance.randrange(9) / 8 for name in ("match", "judge") if chance.random() < 0.8}
    verdict = chance.choice(VERDICTS)
    cost = chance.choice([None, 0.25, 0.5])
    fields: dict[str, Any] = {
        "values": values,
        "attempt": chance.randint(1, 3),
        "usages": (Usage("m", tokens_in=chance.randrange(9), tokens_out=1, cost=cost, is_least=chance.random() < 0.3),)
        if chance.random() < 0.8
        else (),
        "duration_ms": float(chance.choice([0, chance.randrange(1000)])),
    }
    if chance.random() < 0.1:
        fields["status"] = "cancelled"
    if verdict == "errored":
        fields["error"] = ErrorRecord("crash", f"failed {chance.choice(['fast', 'slow'])} {chance.random()}")
    return end(run, chance.randrange(n_cases), chance.randrange(n), verdict, **fields)


def _totals(store: Store, run: int) -> dict[str, Any]:
    summary = store.runs.summary(run)
    names = ("passed", "failed", "errored", "unscored")
    return {
        "run": [getattr(summary, f"n_{name}") for name in names]
        + [summary.n_unpriced, summary.n_uncounted, summary.n_timed]
        + [summary.tokens_in, summary.tokens_out, summary.cost, summary.duration_ms],
        "cases": {
            row.case_index: [
                row.verdicts,
                *(getattr(row, f"n_{name}") for name in names),
                *(row.cost, row.duration_ms, row.n_unpriced, row.n_uncounted, row.n_timed),
            ]
            for row in store.runs.case_rows(run)
        },
        "means": {row.case_index: dict(row.means) for row in store.runs.case_rows(run)},
        "metrics": {row.metric: (row.n, row.n_passed, row.low, row.high) for row in store.runs.metric_rows(run)},
        "errors": {(group.kind, group.message): group.n for group in store.runs.error_groups(run)},
    }


def _recounted(store: Store, run: int) -> dict[str, Any]:
    """The same from trials and scores alone, in plain Python."""
    trials = select(TRIAL).where(TRIAL.c.run_id == run).order_by(TRIAL.c.case_index, TRIAL.c.trial_index)
    every = [row._mapping for row in select_rows(store, trials)]
    scores = [row._mapping for row in select_rows(store, select(SCORE).where(SCORE.c.run_id == run))]
    done = [trial for trial in every if trial["verdict"]]
    cases = sorted({trial["case_index"] for trial in every})
    metrics = sorted({score["metric"] for score in scores})
    errors = [
        (trial["error_kind"], normalised(trial["error_message"])) for trial in done if trial["verdict"] == "errored"
    ]
    return {
        "run": [
            *_verdicts(done),
            *_gaps(done),
            *(sum(trial[name] or 0 for trial in done) for name in ("tokens_in", "tokens_out", "cost", "duration_ms")),
        ],
        "cases": {index: _case(every, index) for index in cases},
        "means": {index: _means([score for score in scores if score["case_index"] == index]) for index in cases},
        "metrics": {name: _metric([score for score in scores if score["metric"] == name]) for name in metrics},
        "errors": {group: errors.count(group) for group in set(errors)},
    }


def _case(trials: list[Any], index: int) -> list[Any]:
    own = [trial for trial in trials if trial["case_index"] == index]
    done = [trial for trial in own if trial["verdict"]]
    verdicts = "".join((trial["verdict"] or ".")[0] for trial in own)
    return [
        verdicts,
        *_verdicts(done),
        *(sum(trial[name] or 0 for trial in done) for name in ("cost", "duration_ms")),
        *_gaps(done),
    ]


def _verdicts(trials: list[Any]) -> list[int]:
    return [sum(trial["verdict"] == verdict for trial in trials) for verdict in VERDICTS]


def _gaps(trials: list[Any]) -> list[int]:
    unpriced = sum(trial["cost"] is None and trial["n_calls"] > 0 for trial in trials)
    return [unpriced, sum(trial["is_least"] for trial in trials), sum(trial["duration_ms"] > 0 for trial in trials)]


def _means(scores: list[Any]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(score["metric"], []).append(score["value"])
    return {metric: sum(found) / len(found) for metric, found in values.items()}


def _metric(scores: list[Any]) -> tuple[int, int, float, float]:
    values = [score["value"] for score in scores]
    return len(values), sum(score["passed"] for score in scores), min(values), max(values)


def test_a_retry_is_made_of_short_transactions_and_leaves_the_totals_of_a_recount(
    store: Store, plan: Plan, end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "TRIALS_RETRIED", 4)
    run = plan(n_cases=12, n=2)
    verdicts = ("passed", "errored", "failed")
    store.runs.record(
        [
            end(run, case, trial, verdicts[(case + trial) % 3], values={"m": case / 8})
            for case in range(12)
            for trial in (0, 1)
        ]
    )
    written: list[int] = []

    def changed(connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE trial"):
            written.append(cursor.rowcount)

    event.listen(Engine, "after_cursor_execute", changed)
    try:
        n = store.runs.retry_errored(run)
    finally:
        event.remove(Engine, "after_cursor_execute", changed)

    held = _totals(store, run)
    with store._database.writing() as connection:
        recount(connection, run)
    store.runs.add_totals()
    assert n == sum(written) == 8
    assert max(written) <= 4
    assert len(written) >= 4
    assert _totals(store, run) == held
    assert store.runs.summary(run).counts.errored == 0
    assert store.runs.error_groups(run) == []
