"""A stored run read back as a `RunResult`, or case by case where all of it at once would be too much."""

from __future__ import annotations

from collections.abc import Iterator

from evaldesk.report.run_result import CaseResult, RunResult
from evaldesk.store import CaseRow, Store

ROWS_AT_ONCE = 200
NOT_PLAYED = "."


def read_result(store: Store, run_id: int) -> RunResult:
    """The whole run with every transcript. Raises NotFoundError."""
    summary = store.runs.summary(run_id)
    cases = tuple(read_cases(store, run_id))
    return RunResult(run_id, summary.config, cases, summary.status, summary.reason)


def read_cases(store: Store, run_id: int) -> Iterator[CaseResult]:
    """The cases of a run in the order of the file, each with its trials. Raises NotFoundError."""
    config = store.runs.summary(run_id).config
    for row in case_rows(store, run_id):
        played = [(row.case_index, index) for index, mark in enumerate(row.strip) if mark != NOT_PLAYED]
        trials = store.runs.trials(run_id, played) if played else {}
        yield CaseResult(
            case=store.runs.case(run_id, row.case_index),
            trials=tuple(trials[key] for key in played),
            n_planned=config.n,
            errors_are_failures=config.errors_are_failures,
        )


def case_rows(store: Store, run_id: int) -> Iterator[CaseRow]:
    """The line of every case, in the order of the file."""
    after = ""
    while rows := store.runs.case_rows(run_id, sort="file", after=after, limit=ROWS_AT_ONCE):
        yield from rows
        after = rows[-1].cursor
