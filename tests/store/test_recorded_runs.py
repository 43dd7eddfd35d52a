"""Runs that came in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from evaldesk.errors import UsageError
from evaldesk.model import Case, Criterion, RunConfig, TrialResult, Turn
from evaldesk.statistics.intervals import curve_point
from evaldesk.store import Store
from evaldesk.store.runs.imports import new_run
from evaldesk.store.runs.run_store import imported_agent, is_imported

CASES = [Case(name, turns=(Turn("Roll."),)) for name in ("a", "b")]
CONFIG = RunConfig(imported_agent("gpt-4o"), "imported-airline", criteria=(Criterion("reward", 1.0),))


def add_run(store: Store, results: Sequence[TrialResult], reason: str) -> int:
    """Import a run of these trials."""
    run = new_run(CONFIG, CASES, results, reason, "digest")
    import_id, (run_id,) = store.imports.begin("a.json", [run], "owner")
    for _ in store.imports.add(import_id, run_id, run, lambda result: result):
        pass
    store.imports.make_ready(import_id)
    store.imports.publish(import_id)
    store.imports.name_last_runs(import_id)
    return run_id


def test_a_recorded_run_is_finished_and_counted_like_our_own(store: Store, end: Callable[..., TrialResult]) -> None:
    verdicts = {(0, 0): "passed", (0, 1): "failed", (1, 0): "passed", (1, 1): "passed"}
    results = [
        end(0, *key, verdict, values={"reward": 1.0 if verdict == "passed" else 0.0})
        for key, verdict in verdicts.items()
    ]

    run_id = add_run(store, results, "Imported from airline.json.")

    summary = store.runs.summary(run_id)
    assert (summary.status, summary.driver, summary.reason) == ("finished", "", "Imported from airline.json.")
    assert (summary.n_passed, summary.n_failed, summary.n_todo) == (3, 1, 0)
    assert is_imported(summary.config)
    assert store.runs.metric_rows(run_id)[0].mean == 0.75
    assert curve_point(store.runs.outcome_counts(run_id), 2).pass_hat_k == 0.5
    assert store.runs.unfinished_runs() == []


@pytest.mark.parametrize(
    ("keys", "verdicts", "n_todo"),
    [
        ([(0, 0), (0, 1), (1, 0)], ["pp", "p"], 0),
        ([(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)], ["ppp", "p.p"], 1),
        ([(1, 0), (1, 1)], [".", "pp"], 1),
    ],
    ids=["fewer trials of a case", "a trial is missing", "a case without a trial"],
)
def test_each_case_has_the_trials_of_the_file(
    store: Store, end: Callable[..., TrialResult], keys: list[tuple[int, int]], verdicts: list[str], n_todo: int
) -> None:
    run_id = add_run(store, [end(0, *key) for key in keys], "")

    summary = store.runs.summary(run_id)
    assert (summary.status, summary.n_done, summary.n_todo) == ("finished", len(keys), n_todo)
    assert (summary.n_least, summary.n_most) == (min(map(len, verdicts)), max(map(len, verdicts)))
    assert summary.config.n == summary.n_least
    assert [row.verdicts for row in store.runs.case_rows(run_id, sort="file")] == verdicts
    assert summary.counts.rate == (1.0 if summary.n_done else None)


@pytest.mark.parametrize("key", [(2, 0), (-1, 0), (0, -1), (0, 1_000_000)])
def test_a_trial_of_no_case_stores_nothing(store: Store, end: Callable[..., TrialResult], key: tuple[int, int]) -> None:
    with pytest.raises(UsageError):
        add_run(store, [end(0, 0, 0), end(0, *key)], "")

    assert store.runs.list() == []


def test_a_run_without_a_trial_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="no trial"):
        add_run(store, [], "")


def test_a_score_that_breaks_every_sum_is_refused(store: Store, end: Callable[..., TrialResult]) -> None:
    with pytest.raises(UsageError, match="cannot be added up"):
        add_run(store, [end(0, 0, 0, values={"reward": 1e300})], "")

    assert store.runs.list() == []
