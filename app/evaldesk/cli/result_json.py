"""Runs and gates as JSON: what `evaldesk eval --json` prints, and what a later `--baseline` reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evaldesk import __version__
from evaldesk.cli.playing import Played
from evaldesk.desk.run_numbers import run_numbers
from evaldesk.report.gates import CaseNumbers, GateOutcome, RunNumbers
from evaldesk.report.pass_k import pass_curve
from evaldesk.store import RunSummary, Store


def result_json(store: Store, played: Sequence[Played], outcomes: Sequence[GateOutcome]) -> str:
    """The runs with their cases and the gates, as one JSON object."""
    gates = [{"name": each.name, "is_held": each.is_held, "sentence": each.sentence} for each in outcomes]
    runs = [_run_object(store, each.run) for each in played]
    whole = {"evaldesk_version": __version__, "is_held": all(each.is_held for each in outcomes), "gates": gates}
    return json.dumps({**whole, "runs": runs}, indent=2, ensure_ascii=False)


def run_object(run: RunSummary, numbers: RunNumbers) -> dict[str, Any]:
    """One run with its numbers, as JSON says it; unknown is null."""
    interval = numbers.interval
    return {
        "run_id": run.id,
        "status": run.status,
        "reason": run.reason,
        "agent": run.config.agent.id,
        "model": run.config.model or run.config.agent_model,
        "evalset_id": run.config.evalset_id,
        "n": run.config.n,
        "n_cases": run.n_cases,
        "n_trials": run.n_trials,
        "n_passed": run.n_passed,
        "n_failed": run.n_failed,
        "n_errored": run.n_errored,
        "n_unscored": run.n_unscored,
        "n_scored": run.n_scored,
        "pass_rate": run.n_passed / run.n_scored if run.n_scored else None,
        "interval": [interval.low, interval.high] if interval else None,
        "pass_at_k": {str(point.k): point.pass_at_k for point in pass_curve(numbers.counts)},
        "pass_hat_k": {str(point.k): point.pass_hat_k for point in pass_curve(numbers.counts)},
        "tokens": run.tokens_in + run.tokens_out,
        "cost": None if run.n_unpriced else run.cost,
        "n_unpriced": run.n_unpriced,
        "duration_ms": run.duration_ms,
        "active_ms": run.active_ms,
    }


def _run_object(store: Store, run: RunSummary) -> dict[str, Any]:
    numbers = run_numbers(store, run)
    metrics = [
        {
            "metric": row.metric,
            "threshold": row.threshold,
            "n": row.n,
            "mean": row.mean,
            "std": row.std_population,
            "min": row.low,
            "max": row.high,
        }
        for row in store.runs.metric_rows(run.id)
    ]
    return {**run_object(run, numbers), "metrics": metrics, "cases": [_case_object(case) for case in numbers.cases]}


def _case_object(case: CaseNumbers) -> dict[str, Any]:
    return {
        "case_id": case.id,
        "is_passed": case.is_passed,
        "n_passed": case.n_passed,
        "n_failed": case.n_failed,
        "n_errored": case.n_errored,
        "n_unscored": case.n_unscored,
        "pass_rate": case.pass_rate,
    }
