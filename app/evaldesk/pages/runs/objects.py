"""Runs, their conclusion and their numbers as JSON says them, for commands and for the door of coding agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from evaldesk.desk.runs.gates.conclusion import RunNumbers
from evaldesk.desk.runs.stored_runs import StoredRuns, metric_interval, run_name
from evaldesk.model import Conclusion, Counts, Gates, Outcome
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.conclusion import Interval
from evaldesk.model.stored import MetricRow, RunSummary, host_of
from evaldesk.pages.runs.facts import run_fingerprint, shown_values
from evaldesk.wording.words import asserted_line


def conclusion_object(conclusion: Conclusion) -> dict[str, Any]:
    """The conclusion as JSON says it; `is_held` is whether it is `passed`."""
    return {
        "outcome": conclusion.outcome,
        "headline": conclusion.headline,
        "is_held": conclusion.is_passed,
        "reasons": list(conclusion.reasons),
        "counts": counts_object(conclusion.counts),
        "gates": [
            {"name": each.name, "answer": each.answer, "is_held": each.is_held, "sentence": each.sentence}
            | ({"counts_as": each.counts_as} if each.counts_as else {})
            for each in conclusion.gates
        ],
    }


def counts_object(counts: Counts) -> dict[str, int]:
    """How the planned trials ended."""
    return {
        "n_planned": counts.planned,
        "n_passed": counts.passed,
        "n_failed": counts.failed,
        "n_errored": counts.errored,
        "n_unscored": counts.unscored,
        "n_not_applicable": counts.not_applicable,
        "n_unplayed": counts.unplayed,
        "n_scored": counts.scored,
    }


def run_object(run: RunSummary, numbers: RunNumbers) -> dict[str, Any]:
    """One run with its numbers, as JSON says it; unknown is null."""
    return {
        "run_id": run.id,
        "status": run.status,
        "reason": run.reason,
        "stop": run.stop and {"rule": run.stop.rule, "n_blocks": run.stop.n_blocks, "n_trials": run.stop.n_trials},
        "agent": run.config.agent.id,
        "model": run.config.model or run.config.agent_model,
        "evalset_id": run.config.evalset_id,
        "n": run.config.n,
        "n_least": run.n_least,
        "n_most": run.n_most,
        "allocated_from": list(run.config.allocated_from),
        "options": shown_values(run.config),
        "recorded": run.config.recorded and asdict(run.config.recorded),
        "fingerprint": run_fingerprint(run.config),
        "n_cases": run.n_cases,
        "n_trials": run.n_trials,
        **counts_object(run.counts),
        "not_applicable": not_applicable(run),
        "pass_rate": run.counts.rate,
        "interval": ends(numbers.interval),
        "shared_state": asdict(run.shared_state),
        **curve_object(numbers, run.n_most, run.config.gates),
        **spent_object(run),
        "duration_ms": run.duration_ms,
        "active_ms": run.active_ms,
    }


def curve_object(numbers: RunNumbers, n_most: int, gates: Gates) -> dict[str, Any]:
    """pass@k and pass^k up to `n_most`, and at each k of the gates."""
    points = numbers.points_to(n_most, [k for k, _ in (*gates.pass_at, *gates.pass_hat)])
    return {
        "pass_at_k": {str(point.k): point.pass_at_k for point in points},
        "pass_at_k_interval": {str(point.k): ends(point.at_interval) for point in points},
        "pass_hat_k": {str(point.k): point.pass_hat_k for point in points},
        "pass_hat_k_interval": {str(point.k): ends(point.hat_interval) for point in points},
        "pass_k_notes": {str(point.k): note for point in points if (note := numbers.basis_of(point))},
    }


def spent_object(run: RunSummary) -> dict[str, Any]:
    """The usage of a run; `cost` is null where some calls or prices are not known, `known_cost` is the rest."""
    return {
        "tokens": run.tokens,
        "n_uncounted": run.n_uncounted,
        "cost": run.whole_cost,
        "known_cost": run.known_cost(run),
        "n_unpriced": run.n_unpriced,
    }


def ends(interval: Interval | None) -> list[float] | None:
    """Both ends of an interval, as JSON says them."""
    return [interval.low, interval.high] if interval else None


def not_applicable(run: RunSummary) -> list[dict[str, Any]]:
    """The number of cases to which each metric applies, for metrics that do not apply to all."""
    return asserted_objects(run.config.n_asserted, run.n_cases)


def asserted_objects(n_asserted: Mapping[str, int], n_cases: int) -> list[dict[str, Any]]:
    """The metrics of `n_asserted` with the number of cases to which each applies."""
    return [
        {"metric": metric, "n_cases_asserted": n, "n_cases": n_cases, "sentence": asserted_line(metric, n, n_cases)}
        for metric, n in n_asserted.items()
    ]


def metric_objects(runs: StoredRuns, run: RunSummary) -> list[dict[str, Any]]:
    """The numbers of each metric over its `n` scored trials.

    Only `mean_unscored_as_0` counts the others, as Osmosis.
    """
    return [metric_object(row, metric_interval(row, run), run.n_done) for row in runs.metrics(run.id)]


def agent_objects(runs: StoredRuns, run: RunSummary) -> list[dict[str, Any]]:
    """The agents of the trials in which several acted, each below its caller; `cost` is null where none is known."""
    return list(map(agent_object, runs.agent_totals(run.id)))


def agent_object(agent: AgentTotals) -> dict[str, Any]:
    """The actions of one agent, as JSON says them."""
    return {**asdict(agent), "cost": agent.known_cost, "is_cost_least": agent.is_cost_least}


def metric_object(row: MetricRow, interval: Interval | None, n_done: int) -> dict[str, Any]:
    """The numbers of one metric of a run with `n_done` trials."""
    return {
        "metric": row.metric,
        "threshold": row.threshold,
        "n": row.n,
        "mean": row.mean,
        "mean_unscored_as_0": mean_unscored_as_0(row, n_done),
        "interval": ends(interval),
        "std": row.std,
        "min": row.low,
        "max": row.high,
    }


def mean_unscored_as_0(row: MetricRow, n_done: int) -> float:
    """The `mean` of Osmosis' results.json: over all trials, 0 for unscored ones."""
    return row.mean * row.n / max(row.n, n_done)


def run_item(run: RunSummary, outcome: Outcome | None) -> dict[str, Any]:
    """One run as an item of a list; times are ISO 8601 in UTC, unknown is null."""
    return {
        "id": run.id,
        "name": run_name(run),
        "status": run.status,
        "outcome": outcome,
        "reason": run.reason,
        "agent": run.config.agent.id,
        "model": run.config.model or run.config.agent_model,
        "evalset": run.config.evalset_id,
        "n": run.config.n,
        "budget": run.config.budget,
        "note": run.note,
        "started_by": run.started_by or None,
        "started_on": run.started_on or None,
        "played_on": host_of(run.driver) or None,
        "shared_state": asdict(run.shared_state),
        "created_at": run.created_at.isoformat(),
        "started_at": run.started_at.isoformat() if run.started_at else None,
        "completed_at": run.finished_at.isoformat() if run.finished_at else None,
        "summary": {
            "passed": run.counts.passed,
            "failed": run.counts.failed,
            "errored": run.counts.errored,
            "unscored": run.counts.unscored,
            "graded": run.counts.scored,
            "pass_rate": run.counts.rate,
            **spent_object(run),
            "progress": {"completed": run.n_done, "total": run.n_trials, "unit": "trials"},
        },
    }
