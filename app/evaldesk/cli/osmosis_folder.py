"""`-o DIR` as later versions of `osmosis eval` write it: DIR/<model>/<data set>/results_<time>_<id>.json.

(reference/osmosis.md 5.5 and 5.6)
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import unicodedata
from collections.abc import Sequence
from math import comb, fsum
from pathlib import Path
from typing import Any

from evaldesk.cli.eval_request import EvalRequest
from evaldesk.cli.osmosis_results import row_results
from evaldesk.cli.playing import Played
from evaldesk.store import Store

LONGEST_PART = 60


def is_folder(name: str) -> bool:
    """Whether `-o` names a folder: one that is there, or a name without an ending."""
    return name.endswith("/") or Path(name).is_dir() or not Path(name).suffix


def folder_results(store: Store, request: EvalRequest, played: Sequence[Played], folder: str) -> tuple[Path, bytes]:
    """The file of the runs, and what it holds: every trial of every model in one flat list, and what they come to."""
    first = played[0]
    config = _config(request, first)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    runs = [
        {**run, "model_tag": tag}
        for each, tag in zip(played, ("primary", "baseline"), strict=False)
        for run in row_results(store, each)
    ]
    finished = max(each.run.finished_at or each.run.created_at for each in played)
    whole = {
        "version": 1,
        "task_id": digest[:12],
        "config_hash": digest[:32],
        "status": "completed" if all(each.run.status == "finished" for each in played) else "in_progress",
        "created_at": first.run.created_at.isoformat(),
        "updated_at": finished.isoformat(),
        "config": config,
        "runs": runs,
        "summary": _summary([run for run in runs if run["model_tag"] == "primary"], runs, config),
        "evaldesk": {"run_ids": [each.run.id for each in played]},
    }
    name = f"results_{int(first.run.created_at.timestamp())}_{digest[:12]}.json"
    place = Path(folder, path_part(config["model"] or first.job.agent.id), path_part(first.job.path.stem))
    return place / name, json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n"


def path_part(text: str) -> str:
    """A name of a folder that every system takes; a long one is cut and ends with four digits of its hash."""
    bare = "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    part = re.sub(r"[^\w]+", "-", bare.lower()).strip("-") or "unnamed"
    if len(part) <= LONGEST_PART:
        return part
    return f"{part[:LONGEST_PART]}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"


def _config(request: EvalRequest, first: Played) -> dict[str, Any]:
    asked = {"temperature": request.temperature, "max_tokens": request.max_tokens}
    config = {
        "model": request.model or first.run.config.agent_model or "",
        "base_url": request.base_url,
        "baseline_model": request.baseline_model,
        "baseline_base_url": request.baseline_base_url,
        "module": request.module,
        "dataset": request.dataset,
        "eval_fns": sorted(each.metric for each in first.run.config.criteria),
        "n_runs": request.n,
        "max_turns": request.max_turns,
        "pass_threshold": 1.0 if request.pass_threshold is None else request.pass_threshold,
        "offset": request.offset,
        "limit": request.limit,
        "completion_params": {name: value for name, value in asked.items() if value is not None},
        "dataset_fingerprint": hashlib.sha256(first.job.path.read_bytes()).hexdigest(),
        "module_fingerprint": first.run.config.agent_version,
    }
    return {name: value for name, value in config.items() if value is not None}


def _summary(primary: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], config: dict[str, Any]) -> Any:
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
