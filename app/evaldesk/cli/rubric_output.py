"""What `evaldesk rubric` prints and writes: the JSON of either form of Osmosis. (reference/osmosis.md 2.2)"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from evaldesk.desk.rubric_configs import RubricConfig
from evaldesk.desk.rubric_judging import JudgedRecord, JudgedRun, statistics
from evaldesk.errors import FormatError
from evaldesk.report.turn_text import printable
from evaldesk.secrets import scrub

PREVIEW = 140


def json_of_model(
    judged: Sequence[JudgedRecord], config: RubricConfig, data: Path, number: int, started: datetime, _: str
) -> dict[str, Any]:
    """The output of `eval rubric`, whose rubric and model come from the command line."""
    return {
        "generated_at": started.isoformat(),
        "model": config.options.models[0],
        "rubric": config.text,
        "data_path": str(data),
        "number": number,
        "overall_statistics": statistics(_scores(judged)),
        "records": [
            {
                "index": each.record.index - 1,
                "label": each.record.label,
                "scores": [run.score for run in each.runs],
                "explanations": [run.explanation for run in each.runs],
                "errors": [*map(_clean, each.errors)],
                "statistics": statistics(each.scores),
            }
            for each in judged
        ],
    }


def json_of_config(
    judged: Sequence[JudgedRecord], config: RubricConfig, data: Path, number: int, started: datetime, source: str
) -> dict[str, Any]:
    """The output of `eval-rubric`, whose rubric and model come from a file."""
    provider, _, model = config.options.models[0].partition("/")
    n_runs, n_good = sum(len(each.runs) for each in judged), len(_scores(judged))
    counts = {"total_runs": n_runs, "success_count": n_good, "failure_count": n_runs - n_good}
    return {
        "generated_at": started.isoformat(),
        "rubric_id": config.id,
        "rubric_source": source,
        "provider": provider,
        "model": model,
        "number": number,
        "config_path": source,
        "data_path": str(data),
        "overall_statistics": statistics(_scores(judged)) | counts,
        "records": [_record(each) for each in judged],
        "output_identifier": int(started.timestamp()),
    }


def compare(output: dict[str, Any], path: Path, data: bytes) -> dict[str, Any]:
    """The numbers of an earlier output beside those of this one. Raises FormatError when it is none."""
    try:
        earlier: Any = json.loads(data)["overall_statistics"]
        before = {key: float(earlier[key]) for key in ("average", "variance", "stdev", "min", "max")}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("this is no output of evaldesk rubric with its statistics", source=str(path)) from error
    now = output["overall_statistics"]
    delta = {key: now[key] - value for key, value in before.items() if now[key] is not None}
    return {"source_path": str(path), "baseline_statistics": before, "delta_statistics": delta}


def show(judged: Sequence[JudgedRecord], config: RubricConfig, output: dict[str, Any]) -> None:
    """A line for each record, what went wrong, and the answer."""
    for each in judged:
        found = statistics(each.scores)
        mean = "–" if found["average"] is None else f"{found['average']:.3g}"
        spread = f" ({found['min']:g} to {found['max']:g})" if len(set(each.scores)) > 1 else ""
        why = next((run.explanation for run in each.runs if run.explanation), "")
        click.echo(f"{mean:>6}{spread}  {printable(each.record.label)}  {click.style(_preview(why), dim=True)}")
        for error in dict.fromkeys(each.errors):
            click.echo(click.style(f"        not graded: {printable(_clean(error))}", fg="yellow"))
    found, n_missing = output["overall_statistics"], sum(len(each.errors) for each in judged)
    n = len(_scores(judged))
    answer = f"No grade could be given by {config.options.models[0]}."
    if n:
        answer = (
            f"{n} grades by {config.options.models[0]}: mean {found['average']:.3g}, deviation {found['stdev']:.3g}, "
            f"{found['min']:g} to {found['max']:g}, of {config.low:g} to {config.high:g}."
        )
        answer += f" {n_missing} could not be given." if n_missing else ""
    click.echo(answer)
    if "baseline_comparison" in output:
        delta = output["baseline_comparison"]["delta_statistics"].get("average")
        if delta is not None:
            click.echo(f"Mean {delta:+.3g} against {printable(output['baseline_comparison']['source_path'])}.")


def _record(each: JudgedRecord) -> dict[str, Any]:
    row = each.record.row
    return {
        "id": str(row.get("id") or each.record.label),
        "record_index": each.record.index,
        "conversation_id": row.get("conversation_id"),
        "input_record": dict(row),
        "statistics": statistics(each.scores)
        | {"total_runs": len(each.runs), "success_count": len(each.scores), "failure_count": len(each.errors)},
        "runs": [_run(run, number) for number, run in enumerate(each.runs, 1)],
    }


def _run(run: JudgedRun, number: int) -> dict[str, Any]:
    return {
        "run_index": number,
        "status": "error" if run.error else "success",
        "started_at": run.started.isoformat(),
        "completed_at": run.completed.isoformat(),
        "duration_seconds": run.duration_s,
        "score": run.score,
        "explanation": run.explanation,
        "preview": _preview(run.explanation),
        "error": _clean(run.error) or None,
        "raw": run.raw,
    }


def _preview(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= PREVIEW else f"{line[: PREVIEW - 1]}…"


def _scores(judged: Sequence[JudgedRecord]) -> list[float]:
    return [score for each in judged for score in each.scores]


def _clean(text: str) -> str:
    return scrub(text, os.environ)
