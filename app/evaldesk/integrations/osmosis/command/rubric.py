"""`evaldesk rubric`: grade conversations of a JSONL file by a rubric, in both forms of Osmosis."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from evaldesk.desk.imports.files import bytes_of, json_of
from evaldesk.durable_files import make_folder, write_output
from evaldesk.errors import FormatError, UsageError
from evaldesk.integrations.osmosis.command.rubrics import (
    JudgedRecord,
    JudgedRun,
    RubricConfig,
    RubricRecord,
    find_rubric_config,
    given_rubric,
    judge_records,
    read_records,
    read_rubric_config,
    statistics,
)
from evaldesk.secrets import scrub
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show, style

EXIT_ERRORS = 1
PREVIEW = 140


@click.command(name="rubric")
@click.option("--data", "-d", required=True, metavar="FILE", help="Conversations, one JSON object a line.")
@click.option(
    "--rubric", "-r", required=True, metavar="TEXT|@FILE|ID", help="Text of the rubric; with --config its id."
)
@click.option("--model", help="The judge, as LiteLLM names it, such as openai/gpt-4o-mini or demo/judge.")
@click.option("--number", "-n", type=click.IntRange(1, 1000), default=1, show_default=True, help="Grades of each line.")
@click.option("--config", "-c", metavar="YAML", help="Rubrics by id; default: rubric_configs.yaml beside the data.")
@click.option("--output", "-o", metavar="FILE", help="Write all grades as JSON.")
@click.option("--baseline", "-b", metavar="FILE", help="An earlier output to compare with.")
@click.option("--score-min", type=float, help="The worst grade; default 0.")
@click.option("--score-max", type=float, help="The best grade; default 1.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), help="Seconds for one attempt of a grade.")
@click.option("--api-key", hidden=True)
def rubric(**values: Any) -> None:
    """Grade the conversations of a JSONL file by a rubric.

    A line has "messages" or "solution_str", and may have "ground_truth", "original_input" and "metadata". Exit code
    1 when a grade is missing. `evaldesk eval rubric` and `evaldesk eval-rubric` are the same command.

    \b
    evaldesk rubric -d talks.jsonl -r "Polite, and answers the question." --model openai/gpt-4o-mini -n 3
    evaldesk rubric -d talks.jsonl -r @rubric.txt --model demo/judge -o grades.json
    evaldesk rubric -d talks.jsonl -r support_followup -c rubric_configs.yaml
    """
    if values["api_key"]:
        raise UsageError("--api-key shows the key to everybody on this machine; set the provider's variable instead")
    path = Path(values["data"])
    records = read_records(bytes_of(path), str(path))
    config, source = _config(path, values)
    chosen_records = _records_of(records, config, path) if source else records
    started_at = datetime.now(UTC)
    judged_records = asyncio.run(
        judge_records(chosen_records, config, values["number"], clock=lambda: datetime.now(UTC))
    )
    to_json = json_of_config if source else json_of_model
    output = to_json(judged_records, config, path, values["number"], started_at, source or str(values["rubric"]))
    if values["baseline"]:
        output["baseline_comparison"] = compare(output, Path(values["baseline"]))
    show_grades(judged_records, config, output)
    if values["output"]:
        _write(Path(values["output"]), output)
    sys.exit(EXIT_ERRORS if any(each.errors for each in judged_records) else 0)


def _config(data: Path, values: dict[str, Any]) -> tuple[RubricConfig, str]:
    """The rubric, and the config file it is from; empty for one of the command line."""
    config_name = values["config"]
    config_path = (
        Path(config_name) if config_name else None if values["model"] else find_rubric_config(data, Path.cwd())
    )
    if config_path is not None:
        return read_rubric_config(config_path, values["rubric"]).but(values), str(config_path)
    if not values["model"]:
        raise UsageError("name the judge with --model, or a file of rubrics with --config", field="model")
    return given_rubric(values, _text(values["rubric"])), ""


def _records_of(records: list[RubricRecord], config: RubricConfig, path: Path) -> list[RubricRecord]:
    """The records that name the rubric."""
    chosen_records = [record for record in records if record.rubric_id.lower() == config.id.lower()]
    if not chosen_records:
        raise UsageError(f"No records in {str(path)!r} reference rubric {config.id!r}.")
    return chosen_records


def _text(rubric: str) -> str:
    if not rubric.startswith("@"):
        return rubric
    text = bytes_of(Path(rubric[1:])).decode("utf-8", "replace").strip()
    if not text:
        raise UsageError(f"{rubric[1:]} is empty; describe a good answer in it")
    return text


def _write(path: Path, output: dict[str, Any]) -> None:
    make_folder(path.parent)
    write_output(path, (json.dumps(output, indent=2, ensure_ascii=False) + "\n").encode())
    show(f"Wrote {path}.")


def json_of_model(
    judged_records: Sequence[JudgedRecord], config: RubricConfig, data: Path, number: int, started_at: datetime, _: str
) -> dict[str, Any]:
    """The output of `eval rubric`, whose rubric and model come from the command line."""
    return {
        "generated_at": started_at.isoformat(),
        "model": config.options.models[0],
        "rubric": config.text,
        "data_path": str(data),
        "number": number,
        "overall_statistics": statistics(_scores(judged_records)),
        "records": [
            {
                "index": each.record.index - 1,
                "label": each.record.label,
                "scores": [run.score for run in each.runs],
                "explanations": [run.explanation for run in each.runs],
                "errors": [*map(_clean, each.errors)],
                "statistics": statistics(each.scores),
            }
            for each in judged_records
        ],
    }


def json_of_config(
    judged_records: Sequence[JudgedRecord],
    config: RubricConfig,
    data: Path,
    number: int,
    started_at: datetime,
    source: str,
) -> dict[str, Any]:
    """The output of `eval-rubric`, whose rubric and model come from a file."""
    provider, _, model = config.options.models[0].partition("/")
    n_runs, n_good = sum(len(each.runs) for each in judged_records), len(_scores(judged_records))
    counts = {"total_runs": n_runs, "success_count": n_good, "failure_count": n_runs - n_good}
    return {
        "generated_at": started_at.isoformat(),
        "rubric_id": config.id,
        "rubric_source": source,
        "provider": provider,
        "model": model,
        "number": number,
        "config_path": source,
        "data_path": str(data),
        "overall_statistics": statistics(_scores(judged_records)) | counts,
        "records": [_record(each) for each in judged_records],
        "output_identifier": int(started_at.timestamp()),
    }


def compare(output: dict[str, Any], path: Path) -> dict[str, Any]:
    """The numbers of an earlier output beside those of this one. Raises FormatError when it is none."""
    try:
        earlier: Any = json_of(path)["overall_statistics"]
        before = {key: float(earlier[key]) for key in ("average", "variance", "stdev", "min", "max")}
    except (FormatError, ValueError, KeyError, TypeError) as error:
        raise FormatError("this is not an output of evaldesk rubric with its statistics", source=str(path)) from error
    now = output["overall_statistics"]
    delta = {key: now[key] - value for key, value in before.items() if now[key] is not None}
    return {"source_path": str(path), "baseline_statistics": before, "delta_statistics": delta}


def show_grades(judged_records: Sequence[JudgedRecord], config: RubricConfig, output: dict[str, Any]) -> None:
    """A line for each record, the problems, and the outcome."""
    for each in judged_records:
        numbers = statistics(each.scores)
        mean = "–" if numbers["average"] is None else f"{numbers['average']:.3g}"
        spread = f" ({numbers['min']:g} to {numbers['max']:g})" if len(set(each.scores)) > 1 else ""
        why = next((run.explanation for run in each.runs if run.explanation), "")
        show(f"{mean:>6}{spread}  {printable(each.record.label)}  {style(_preview(why), dim=True)}")
        for error in dict.fromkeys(each.errors):
            show(style(f"        not graded: {printable(_clean(error))}", fg="yellow"))
    numbers, n_missing = output["overall_statistics"], sum(len(each.errors) for each in judged_records)
    n = len(_scores(judged_records))
    answer = f"No grade could be given by {config.options.models[0]}."
    if n:
        answer = (
            f"{n} grades by {config.options.models[0]}: mean {numbers['average']:.3g}, "
            f"deviation {numbers['stdev']:.3g}, {numbers['min']:g} to {numbers['max']:g}, "
            f"of {config.low:g} to {config.high:g}."
        )
        answer += f" {n_missing} could not be given." if n_missing else ""
    show(answer)
    if "baseline_comparison" in output:
        delta = output["baseline_comparison"]["delta_statistics"].get("average")
        if delta is not None:
            show(f"Mean {delta:+.3g} against {printable(output['baseline_comparison']['source_path'])}.")


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
        "started_at": run.started_at.isoformat(),
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


def _scores(judged_records: Sequence[JudgedRecord]) -> list[float]:
    return [score for each in judged_records for score in each.scores]


def _clean(text: str) -> str:
    return scrub(text, os.environ)
