"""Recording results: once each, with every total in step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from math import inf, isfinite, nan
from pathlib import Path
from re import search
from typing import Any

import pytest
import zstandard
from sqlalchemy import Engine, event, select, update
from tests.store.conftest import select_rows

from evaldesk.errors import NotFoundError, WorkspaceError
from evaldesk.model import ErrorRecord, Score, TrialResult, Usage
from evaldesk.model.stored import PendingTrial
from evaldesk.store import Store
from evaldesk.store.runs.recording import normalised
from evaldesk.store.tables.blocks import MAX_UNPACKED
from evaldesk.store.tables.columns import ZSTD, unpack
from evaldesk.store.tables.runs import TRANSCRIPT

Plan = Callable[..., int]
End = Callable[..., TrialResult]


def test_a_recorded_trial_reads_as_it_was(store: Store, plan: Plan, end: End) -> None:
    run = plan()
    result = end(run, 1, 0, "failed", logs="ü" * 5000)

    store.runs.record([result])

    assert store.runs.trial(run, 1, 0) == result


def test_a_copied_trial_is_that_of_its_own_place(store: Store, plan: Plan, end: End) -> None:
    run = plan(n=2)
    store.runs.record([end(run, 0, 0, "passed")])
    with store._database.writing() as connection:
        connection.execute(update(TRANSCRIPT).where(TRANSCRIPT.c.run_id == run).values(trial_index=1))

    (copied,) = store.runs.trials(run, [(0, 1)]).values()

    assert (copied.run_id, copied.case_index, copied.trial_index) == (run, 0, 1)


def test_a_trial_that_was_not_played_is_not_found(store: Store, plan: Plan) -> None:
    run = plan()

    with pytest.raises(NotFoundError, match="not played yet"):
        store.runs.trial(run, 0, 0)


def test_a_second_result_for_a_trial_does_not_count(store: Store, plan: Plan, end: End) -> None:
    run = plan()
    store.runs.record([end(run, 0, 0, "passed")])

    n_counted = store.runs.record([end(run, 0, 0, "failed"), end(run, 0, 1, "passed"), end(run, 0, 1, "failed")])

    summary = store.runs.summary(run)
    assert n_counted == 1
    assert (summary.n_passed, summary.n_failed, summary.n_duplicates) == (2, 0, 2)
    assert store.runs.trial(run, 0, 0).verdict == "passed"


def test_results_for_trials_that_do_not_exist_are_dropped(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1)

    n_counted = store.runs.record([end(run, 7, 0), end(run, 0, 7), end(99, 0, 0)])

    assert n_counted == 0
    assert store.runs.summary(run).n_done == 0


def test_one_transaction_takes_results_of_several_runs(store: Store, plan: Plan, end: End) -> None:
    runs = [plan(), plan()]

    store.runs.record([end(run, 0, 0, verdict) for run, verdict in zip(runs, ("passed", "failed"), strict=True)])

    assert [store.runs.summary(run).n_passed for run in runs] == [1, 0]


def forged_usage(**numbers: Any) -> Usage:
    """A usage with numbers that none can have."""
    usage = Usage("demo")
    for name, number in numbers.items():
        object.__setattr__(usage, name, number)
    return usage


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"usages": (forged_usage(tokens_in=2**63),)}, "tokens_in is an integer of 64 bits; at most"),
        ({"usages": (forged_usage(tokens_out=-(2**70)),)}, "tokens_out is an integer of 71 bits; at most"),
        ({"usages": (forged_usage(cost=inf),)}, "cost is inf; only finite numbers are stored"),
        ({"duration_ms": nan}, "duration_ms is nan; only finite numbers are stored"),
        ({"error": ErrorRecord("crash", "half \ud800")}, "error_message holds half of a character"),
        ({"logs": "half \ud800"}, "surrogates not allowed"),
        ({"logs": object()}, "Encoding objects of type object is unsupported"),
        ({"duration_ms": "soon"}, "cannot be stored"),
        ({"values": {"m": [1.0]}}, "cannot be stored"),
    ],
    ids=["tokens", "negative", "cost", "time", "error", "half", "object", "text", "list"],
)
def test_what_the_store_cannot_hold_errs_alone(
    store: Store, plan: Plan, end: End, fields: dict[str, Any], said: str
) -> None:
    run = plan(n_cases=2)
    values = fields.get("values")
    scores = {"scores": (Score("m", values["m"], threshold=0.5),)} if values else {}
    bad = end(run, 0, 1, **({name: each for name, each in fields.items() if name != "values"} | scores))

    n_counted = store.runs.record([end(run, 0, 0), bad, end(run, 1, 0, "failed"), end(run, 1, 1)])

    summary = store.runs.summary(run)
    stored = store.runs.trial(run, 0, 1)
    assert (n_counted, summary.n_passed, summary.n_failed, summary.n_errored) == (4, 2, 1, 1)
    assert stored.error
    assert (stored.verdict, stored.error.kind) == ("errored", "unstorable")
    assert search(said, stored.error.message)
    assert store.runs.pending(run) == []
    assert isfinite(summary.cost)
    assert store.runs.trial(run, 1, 1) == end(run, 1, 1)


def test_a_cancelled_trial_stays_to_do(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1)

    store.runs.record([end(run, 0, 0, "errored", status="cancelled")])

    summary = store.runs.summary(run)
    assert (summary.n_done, summary.n_todo, summary.cost) == (0, 2, 0.0)
    assert store.runs.pending(run) == [PendingTrial(0, 0, attempt=2), PendingTrial(0, 1, attempt=1)]
    assert store.runs.error_groups(run) == []
    assert store.runs.trial(run, 0, 0).status == "cancelled"


def test_errored_trials_are_retried_as_their_next_attempt(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=2, n=1)
    store.runs.record([end(run, 0, 0, "errored"), end(run, 1, 0, "passed")])

    n_planned = store.runs.retry_errored(run)
    planned = store.runs.summary(run), store.runs.pending(run), store.runs.error_groups(run)
    store.runs.record([end(run, 0, 0, "passed", attempt=2)])

    assert n_planned == 1
    assert (planned[0].n_errored, planned[0].n_todo, planned[0].cost) == (0, 1, 0.5)
    assert planned[1:] == ([PendingTrial(0, 0, attempt=2)], [])
    assert store.runs.summary(run).n_passed == 2
    assert store.runs.trial(run, 0, 0).verdict == "passed"
    assert _kept(store) == [1, 2]


def test_a_late_result_of_a_superseded_attempt_is_evidence_and_no_score(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1, n=1)
    store.runs.record([end(run, 0, 0, "errored", attempt=1)])
    store.runs.retry_errored(run)
    store.runs.retry_errored(run)

    n_counted = store.runs.record([end(run, 0, 0, "passed", attempt=1)])

    assert n_counted == 0
    assert store.runs.summary(run).n_todo == 1
    assert store.runs.trial(run, 0, 0).verdict == "errored"


def test_an_unknown_price_is_counted_and_never_zero(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1, n=3)
    unpriced, no_model = (Usage("mystery", tokens_in=5, cost=None),), ()

    store.runs.record([end(run, 0, 0, usages=unpriced), end(run, 0, 1, usages=no_model), end(run, 0, 2)])

    summary = store.runs.summary(run)
    assert (summary.cost, summary.n_unpriced, summary.tokens_in, summary.tokens_out) == (0.5, 1, 15, 2)


def test_scores_of_turns_and_scores_without_a_number_stay_in_the_transcript(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1, n=1)
    scores = (
        Score("match", 0.25, passed=False),
        Score("match", 1.0, turn=0, passed=True),
        Score("judge", None, reason="no reference"),
        Score("broken", nan),
    )

    store.runs.record([end(run, 0, 0, "failed", scores=scores)])

    assert [(row.metric, row.n, row.mean) for row in store.runs.metric_rows(run)] == [("match", 1, 0.25)]


def test_errors_are_grouped_by_what_they_say(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=4, n=1)
    messages = ["timeout after 3.5 s", "timeout after 12 s", "KeyError: 'x'"]
    results = [end(run, index, 0, "errored", error=ErrorRecord("crash", text)) for index, text in enumerate(messages)]
    judge = Score("judge", error=ErrorRecord("metric", "no answer"))

    store.runs.record([*results[:1], end(run, 3, 0, "errored", error=None, scores=(judge,)), *results[1:]])

    groups = [(group.kind, group.message, group.n, group.first) for group in store.runs.error_groups(run)]
    assert groups == [
        ("crash", "timeout after # s", 2, (0, 0)),
        ("crash", "KeyError: 'x'", 1, (2, 0)),
        ("metric", "no answer", 1, (3, 0)),
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", ""),
        ("first\nsecond", "first"),
        ("<Tool object at 0x7f00dead> failed", "<Tool object at #> failed"),
        ("request 6f1c0f6e-3e2b-4c8e-9d59-0c7d1b0c9a11 was lost", "request # was lost"),
        ("x" * 500, "x" * 200),
    ],
    ids=["nothing", "first line", "address", "uuid", "long"],
)
def test_what_differs_each_time_is_taken_out_of_a_message(message: str, expected: str) -> None:
    assert normalised(message) == expected


def test_recording_reads_no_table_from_end_to_end(store: Store, plan: Plan, end: End, database: Path) -> None:
    run = plan()
    executed: list[tuple[str, Any]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: Any, _x: object, is_many: bool) -> None:
        executed.append((statement, parameters[0] if is_many else parameters))

    event.listen(Engine, "before_cursor_execute", note)
    store.runs.record([end(run, 0, 0, "errored"), end(run, 1, 0), end(run, 1, 0)])
    event.remove(Engine, "before_cursor_execute", note)

    with closing(sqlite3.connect(database)) as connection:
        asked = [(text, values) for text, values in executed if not text.startswith("BEGIN")]
        steps = [
            step for text, values in asked for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
        ]
    assert len(asked) > 5
    assert not [step for step in steps if step.startswith("SCAN")]


def _kept(store: Store) -> list[int]:
    """The attempts whose transcripts are kept."""
    held = TRANSCRIPT.c
    rows = select_rows(store, select(held.attempt).where(held.case_index == 0).order_by(held.attempt))
    return [attempt for (attempt,) in rows]


def test_a_value_that_unpacks_to_too_much_is_refused() -> None:
    bomb = zstandard.ZstdCompressor().compress(b" " * (MAX_UNPACKED + 1))

    with pytest.raises(WorkspaceError, match="unpacks to more than 256 MiB"):
        unpack(ZSTD, bomb, TrialResult)
