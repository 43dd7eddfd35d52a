"""The summary of a run as Osmosis reckons it. (osmosis-sdk rollout/eval/evaluation/report.py v0.2.14)"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, fsum, sqrt
from typing import Any

from evaldesk.formats.exchange import RecordedRun
from evaldesk.model import TrialResult

KS = (1, 3, 5, 10)


def summary_of(run: RecordedRun, threshold: float) -> dict[str, Any]:
    """Totals and, for each metric, mean, population deviation, range and pass@k; a failed run scores 0 there."""
    rows: dict[int, list[TrialResult]] = {}
    for result in run.results:
        rows.setdefault(result.case_index, []).append(result)
    n = max((len(trials) for trials in rows.values()), default=0)
    found = {each.metric: _of_metric(each.metric, list(rows.values()), n, threshold) for each in run.criteria}
    return {
        "total_rows": len(rows),
        "total_runs": len(run.results),
        "eval_fns": found,
        "total_tokens": sum(result.tokens for result in run.results),
        "total_duration_ms": fsum(result.duration_ms for result in run.results),
    }


def _of_metric(metric: str, rows: Sequence[Sequence[TrialResult]], n: int, threshold: float) -> dict[str, float]:
    scores = [[_score(trial, metric) for trial in trials] for trials in rows]
    values = [value for row in scores for value in row]
    mean = fsum(values) / len(values) if values else 0.0
    std = sqrt(fsum((value - mean) * (value - mean) for value in values) / len(values)) if values else 0.0
    found = {"mean": mean, "std": std, "min": min(values, default=0.0), "max": max(values, default=0.0)}
    for k in KS:
        if 1 < n >= k:
            each = [_pass_at_k(len(row), sum(value >= threshold for value in row), k) for row in scores]
            found[f"pass_at_{k}"] = fsum(each) / len(each)
    return found


def _score(trial: TrialResult, metric: str) -> float:
    found = (score.value for score in trial.scores if score.metric == metric and score.turn is None)
    value = next(found, None)
    return 0.0 if value is None else value


def _pass_at_k(n: int, c: int, k: int) -> float:
    """Osmosis' own: with fewer trials than k it is whether any passed, where ours is undefined."""
    if c == 0:
        return 0.0
    return 1.0 if n - c < k else 1.0 - comb(n - c, k) / comb(n, k)
