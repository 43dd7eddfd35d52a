"""The numbers of stored runs that gates and summaries are made of, read from the totals, never from transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaldesk.desk.run_results import case_rows
from evaldesk.report.gates import CaseNumbers, RunNumbers
from evaldesk.store import RunSummary, Store


def run_numbers(store: Store, run: RunSummary) -> RunNumbers:
    """The numbers of one run."""
    cases = tuple(
        CaseNumbers(
            id=row.case_id,
            n_passed=row.n_passed,
            n_failed=row.n_failed,
            n_errored=row.n_errored,
            n_unscored=row.n_unscored,
            n_planned=run.config.n,
            pass_threshold=run.config.pass_threshold,
            errors_are_failures=run.config.errors_are_failures,
        )
        for row in case_rows(store, run.id)
    )
    return RunNumbers(cases, run.cost, run.n_unpriced)


def joined_numbers(runs: Sequence[RunNumbers]) -> RunNumbers:
    """Several runs as one; a case id that occurs again gets its number, so that no case hides another."""
    seen: dict[str, int] = {}
    cases = []
    for case in (case for run in runs for case in run.cases):
        seen[case.id] = seen.get(case.id, 0) + 1
        cases.append(case if seen[case.id] == 1 else replace(case, id=f"{case.id} ({seen[case.id]})"))
    return RunNumbers(tuple(cases), sum(run.cost for run in runs), sum(run.n_unpriced for run in runs))
