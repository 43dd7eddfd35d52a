"""Results in the schema of `osmosis eval -o`; our own values are under `evaldesk`. (reference/osmosis.md 5.5)"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from evaldesk.cli.eval.playing import Played
from evaldesk.cli.eval.result_json import conclusion_object, counts_object, metric_objects
from evaldesk.desk.evalsets.exporting import export_run
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Conclusion
from evaldesk.model.comparison import Comparison


def osmosis_json(runs: StoredRuns, played: Sequence[Played], conclusion: Conclusion) -> bytes:
    """The first run; a second one is its baseline, told apart by `model_tag` as version 0.2.17 does."""
    found = [_results(runs, each) for each in played]
    whole = found[0]
    if len(found) > 1:
        _add_baseline(whole, found[1])
    whole["evaldesk"] |= _ours(runs, played, conclusion)
    return json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n"


def summary_objects(runs: StoredRuns, played: Sequence[Played]) -> list[dict[str, Any]]:
    """The `summary` of each run."""
    return [_results(runs, each)["summary"] for each in played]


def row_results(runs: StoredRuns, each: Played) -> list[dict[str, Any]]:
    """Every trial of a run with its row, in one flat list; `error` is null where there is none."""
    return [
        {"row_index": row["row_index"], **run, "error": run.get("error")}
        for row in _results(runs, each)["rows"]
        for run in row["runs"]
    ]


def compared(runs: StoredRuns, played: Sequence[Played]) -> dict[str, Comparison | None]:
    """For each metric the first run against the second, paired by row; empty without a second."""
    if len(played) < 2:
        return {}
    return runs.metric_changes(before=played[1].run, after=played[0].run)


def _results(runs: StoredRuns, each: Played) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(export_run(runs, each.run.id, "osmosis-results").data)
    found["config"]["n_runs"] = each.run.n_most
    place = {case.id: index for index, case in enumerate(each.job.evalset.cases)}
    chosen = runs.case_ids(each.run.id)
    for row in found["rows"]:
        row["row_index"] = place[chosen[row["row_index"]]]
    return found


def _add_baseline(whole: dict[str, Any], baseline: dict[str, Any]) -> None:
    models = ((whole, "primary"), (baseline, "baseline"))
    whole["model_summaries"] = [
        {
            "model": found["config"]["model"],
            "model_tag": tag,
            "total_runs": found["summary"]["total_runs"],
            "total_tokens": found["summary"]["total_tokens"],
            "total_duration_ms": found["summary"]["total_duration_ms"],
            "eval_fns": found["summary"]["eval_fns"],
        }
        for found, tag in models
    ]
    rows: dict[int, list[dict[str, Any]]] = {}
    for found, tag in models:
        for row in found["rows"]:
            rows.setdefault(row["row_index"], []).extend({**run, "model_tag": tag} for run in row["runs"])
    whole["rows"] = [{"row_index": index, "runs": runs} for index, runs in sorted(rows.items())]
    whole["config"]["baseline_model"] = baseline["config"]["model"]
    for name in ("total_runs", "total_tokens", "total_duration_ms"):
        whole["summary"][name] += baseline["summary"][name]
    whole["summary"]["stopped_early"] = False


def _ours(runs: StoredRuns, played: Sequence[Played], conclusion: Conclusion) -> dict[str, Any]:
    """Values without a place in Osmosis: verdicts, errors of functions, doubt, gates, the paired difference."""
    first = played[0]
    numbers = runs.numbers(first.run)
    interval = numbers.interval
    comparisons = {name: found and asdict(found) for name, found in compared(runs, played).items()}
    return {
        "run_ids": [each.run.id for each in played],
        "statuses": [each.run.status for each in played],
        "dataset": {
            "path": str(first.job.path),
            "sha256": hashlib.sha256(first.job.path.read_bytes()).hexdigest(),
            "n_rows": len(first.job.evalset.cases),
        },
        **counts_object(numbers.counts),
        "interval": [interval.low, interval.high] if interval else None,
        "metrics": metric_objects(runs, first.run),
        "conclusion": conclusion_object(conclusion),
        "gates": conclusion_object(conclusion)["gates"],
        "against_baseline": comparisons,
        "not_passed": [found for each in played for found in _not_passed(runs, each)],
    }


def _not_passed(runs: StoredRuns, each: Played) -> list[dict[str, Any]]:
    place = {case.id: index for index, case in enumerate(each.job.evalset.cases)}
    return [
        {
            "run_id": each.run.id,
            "row_index": place[case.id],
            "run_index": trial.trial_index,
            "verdict": trial.verdict,
            "stop_reason": trial.stop_reason,
            "error": trial.error.message if trial.error else None,
            "score_errors": {score.metric: score.error.message for score in trial.scores if score.error},
        }
        for case in runs.cases(each.run.id)
        for trial in case
        if trial.verdict != "passed"
    ]
