"""Results in the schema of `osmosis eval -o`; our own values are under `evaldesk`. (reference/osmosis.md 5.5)"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from math import comb, fsum
from pathlib import Path
from typing import Any

from evaldesk.cli.eval.playing import Played
from evaldesk.cli.eval.request import EvalRequest
from evaldesk.desk.evalsets.exporting import export_run
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.integrations.osmosis.command.options import OsmosisOptions
from evaldesk.model import Conclusion
from evaldesk.model.comparison import Comparison
from evaldesk.pages.runs.objects import conclusion_object, counts_object, metric_objects


def osmosis_json(runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion) -> bytes:
    """The first run; a second one is its baseline, told apart by `model_tag` as version 0.2.17 does."""
    results = [_results(runs, each) for each in played_runs]
    first_result = results[0]
    if len(results) > 1:
        _add_baseline(first_result, results[1])
    first_result["evaldesk"] |= _evaldesk_object(runs, played_runs, conclusion)
    return json.dumps(first_result, indent=2, ensure_ascii=False).encode() + b"\n"


def summary_objects(runs: StoredRuns, played_runs: Sequence[Played]) -> list[dict[str, Any]]:
    """The `summary` of each run."""
    return [_results(runs, each)["summary"] for each in played_runs]


def compared(runs: StoredRuns, played_runs: Sequence[Played]) -> dict[str, Comparison | None]:
    """For each metric the first run against the second, paired by row; empty without a second."""
    if len(played_runs) < 2:
        return {}
    return runs.metric_changes(before=played_runs[1].run, after=played_runs[0].run)


def _results(runs: StoredRuns, each: Played) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(export_run(runs, each.run.id, "osmosis-results").data)
    results["config"]["n_runs"] = each.run.n_most
    place = {case.id: index for index, case in enumerate(each.job.evalset.cases)}
    case_ids = runs.case_ids(each.run.id)
    for row in results["rows"]:
        row["row_index"] = place[case_ids[row["row_index"]]]
    return results


def _add_baseline(primary: dict[str, Any], baseline: dict[str, Any]) -> None:
    models = ((primary, "primary"), (baseline, "baseline"))
    primary["model_summaries"] = [
        {
            "model": results["config"]["model"],
            "model_tag": tag,
            "total_runs": results["summary"]["total_runs"],
            "total_tokens": results["summary"]["total_tokens"],
            "total_duration_ms": results["summary"]["total_duration_ms"],
            "eval_fns": results["summary"]["eval_fns"],
        }
        for results, tag in models
    ]
    rows: dict[int, list[dict[str, Any]]] = {}
    for results, tag in models:
        for row in results["rows"]:
            rows.setdefault(row["row_index"], []).extend({**run, "model_tag": tag} for run in row["runs"])
    primary["rows"] = [{"row_index": index, "runs": runs} for index, runs in sorted(rows.items())]
    primary["config"]["baseline_model"] = baseline["config"]["model"]
    for name in ("total_runs", "total_tokens", "total_duration_ms"):
        primary["summary"][name] += baseline["summary"][name]
    primary["summary"]["stopped_early"] = False


def _evaldesk_object(runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion) -> dict[str, Any]:
    """Values without a place in Osmosis: verdicts, errors of functions, doubt, gates, the paired difference."""
    first = played_runs[0]
    numbers = runs.numbers(first.run)
    interval = numbers.interval
    comparisons = {name: pair and asdict(pair) for name, pair in compared(runs, played_runs).items()}
    return {
        "run_ids": [each.run.id for each in played_runs],
        "statuses": [each.run.status for each in played_runs],
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
        "not_passed": [trial for each in played_runs for trial in _not_passed(runs, each)],
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


LONGEST_PART = 60


def folder_results(
    store: StoredRuns, request: EvalRequest, played_runs: Sequence[Played], folder: str
) -> tuple[Path, bytes]:
    """The file of the runs and its contents: every trial of every model in one flat list, and the totals."""
    first = played_runs[0]
    config = _config(request, first)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    runs = [
        {"row_index": row["row_index"], **run, "error": run.get("error"), "model_tag": tag}
        for each, tag in zip(played_runs, ("primary", "baseline"), strict=False)
        for row in _results(store, each)["rows"]
        for run in row["runs"]
    ]
    finished_at = max(each.run.finished_at or each.run.created_at for each in played_runs)
    results = {
        "version": 1,
        "task_id": digest[:12],
        "config_hash": digest[:32],
        "status": "completed" if all(each.run.status == "finished" for each in played_runs) else "in_progress",
        "created_at": first.run.created_at.isoformat(),
        "updated_at": finished_at.isoformat(),
        "config": config,
        "runs": runs,
        "summary": _folder_summary([run for run in runs if run["model_tag"] == "primary"], runs, config),
        "evaldesk": {"run_ids": [each.run.id for each in played_runs]},
    }
    name = f"results_{int(first.run.created_at.timestamp())}_{digest[:12]}.json"
    place = Path(folder, path_part(config["model"] or first.job.agent.id), path_part(first.job.path.stem))
    return place / name, json.dumps(results, indent=2, ensure_ascii=False).encode() + b"\n"


def path_part(text: str) -> str:
    """A name of a folder that every system takes; a long one is cut and ends with four digits of its hash."""
    plain_letters = "".join(
        letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter)
    )
    part = re.sub(r"[^\w]+", "-", plain_letters.lower()).strip("-") or "unnamed"
    if len(part) <= LONGEST_PART:
        return part
    return f"{part[:LONGEST_PART]}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"


def _config(request: EvalRequest, first: Played) -> dict[str, Any]:
    option_values, form = request.run_options, OsmosisOptions(**request.tool_options)
    sampling = {name: option_values.get(name) for name in ("temperature", "max_tokens")}
    config = {
        "model": option_values.get("model") or first.run.config.agent_model or "",
        "base_url": option_values.get("base_url"),
        "baseline_model": form.baseline_model,
        "baseline_base_url": form.baseline_base_url,
        "module": form.module,
        "dataset": form.dataset,
        "eval_fns": sorted(each.metric for each in first.run.config.criteria),
        "n_runs": request.value("n"),
        "max_turns": option_values.get("max_turns"),
        "pass_threshold": request.value("pass_threshold"),
        "offset": form.offset,
        "limit": form.limit,
        "completion_params": {name: value for name, value in sampling.items() if value is not None},
        "dataset_fingerprint": hashlib.sha256(first.job.path.read_bytes()).hexdigest(),
        "module_fingerprint": first.run.config.agent_version,
    }
    return {name: value for name, value in config.items() if value is not None}


def _folder_summary(primary: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], config: dict[str, Any]) -> Any:
    return {
        "eval_fns": {name: _of_function(primary, name, config) for name in config["eval_fns"]},
        "total_runs": len(runs),
        "total_tokens": sum(run["tokens"] for run in runs),
        "total_duration_ms": fsum(run["duration_ms"] for run in runs),
    }


def _of_function(runs: Sequence[dict[str, Any]], name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Mean, median, deviation, range, quartiles and pass@k; a run without a score counts 0, as there."""
    rows: dict[int, list[float]] = {}
    for run in runs:
        rows.setdefault(run["row_index"], []).append(run["scores"].get(name, 0.0))
    values = [value for row in rows.values() for value in row] or [0.0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    n = config["n_runs"]
    counts = [sum(value >= config["pass_threshold"] for value in row) for row in rows.values()] or [0]
    return {
        "mean": fsum(values) / len(values),
        "median": statistics.median(values),
        "std": statistics.pstdev(values),
        "min": min(values),
        "max": max(values),
        "p25": low,
        "p75": high,
        "pass_at_k": {str(k): fsum(_pass_at_k(n, c, k) for c in counts) / len(counts) for k in _ks(n)},
    }


def _ks(n: int) -> list[int]:
    """1, 2, 4, … below n, and n; none where each row was run once."""
    return [] if n == 1 else [*(2**power for power in range(n.bit_length()) if 2**power < n), n]


def _pass_at_k(n: int, c: int, k: int) -> float:
    """Trials that are missing after an early stop count as failed, as there."""
    return 1.0 - comb(n - c, k) / comb(n, k)


class OsmosisFiles:
    """The result files of `evaldesk eval` as `osmosis eval` writes them."""

    folder_results = staticmethod(folder_results)
    as_json = staticmethod(osmosis_json)


RESULTS = OsmosisFiles()
