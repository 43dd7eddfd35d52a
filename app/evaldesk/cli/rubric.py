"""`evaldesk rubric`: grade conversations of a JSONL file by a rubric, in both forms of Osmosis."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from evaldesk.desk.rubric_configs import RubricConfig
    from evaldesk.desk.rubric_records import RubricRecord

EXIT_ERRORS = 1


@click.command(name="rubric")
@click.option("--data", "-d", required=True, metavar="FILE", help="Conversations, one JSON object a line.")
@click.option("--rubric", "-r", required=True, metavar="TEXT|@FILE|ID", help="What is good; with a config its id.")
@click.option("--model", help="The judge, as LiteLLM names it, such as openai/gpt-4o-mini or demo/judge.")
@click.option("--number", "-n", type=click.IntRange(1, 1000), default=1, show_default=True, help="Grades of each line.")
@click.option("--config", "-c", metavar="YAML", help="Rubrics by id; rubric_configs.yaml beside the data unless given.")
@click.option("--output", "-o", metavar="FILE", help="Write all grades as JSON.")
@click.option("--baseline", "-b", metavar="FILE", help="An earlier output to compare with.")
@click.option("--score-min", type=float, help="The worst grade; 0 unless given.")
@click.option("--score-max", type=float, help="The best grade; 1 unless given.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), help="Seconds for one attempt of a grade.")
@click.option("--api-key", hidden=True)
def rubric(**given: Any) -> None:
    """Grade the conversations of a JSONL file by a rubric.

    A line has "messages" or "solution_str", and may have "ground_truth", "original_input" and "metadata". Exit code
    1 when a grade is missing. `evaldesk eval rubric` and `evaldesk eval-rubric` are the same command.

    \b
    evaldesk rubric -d talks.jsonl -r "Polite, and answers the question." --model openai/gpt-4o-mini -n 3
    evaldesk rubric -d talks.jsonl -r @rubric.txt --model demo/judge -o grades.json
    evaldesk rubric -d talks.jsonl -r support_followup -c rubric_configs.yaml
    """
    from evaldesk.cli.rubric_output import compare, json_of_config, json_of_model, show
    from evaldesk.desk.rubric_judging import judge_records
    from evaldesk.desk.rubric_records import read_records

    if given["api_key"]:
        raise UsageError("--api-key shows the key to everybody on this machine; set the provider's variable instead")
    path = Path(given["data"])
    records = read_records(_bytes(path), str(path))
    config, source = _config(path, given)
    chosen = _chosen(records, config, path) if source else records
    started = datetime.now(UTC)
    judged = asyncio.run(judge_records(chosen, config, given["number"], clock=lambda: datetime.now(UTC)))
    to_json = json_of_config if source else json_of_model
    output = to_json(judged, config, path, given["number"], started, source or str(given["rubric"]))
    if given["baseline"]:
        output["baseline_comparison"] = compare(output, Path(given["baseline"]), _bytes(Path(given["baseline"])))
    show(judged, config, output)
    if given["output"]:
        _write(Path(given["output"]), output)
    sys.exit(EXIT_ERRORS if any(each.errors for each in judged) else 0)


def _config(data: Path, given: dict[str, Any]) -> tuple[RubricConfig, str]:
    """The rubric, and the config file it is from; empty for one of the command line."""
    from evaldesk.desk.rubric_configs import RubricConfig, find_rubric_config, read_rubric_config
    from evaldesk.metrics.judges.options import JudgeOptions

    named = given["config"]
    found = Path(named) if named else None if given["model"] else find_rubric_config(data, Path.cwd())
    if found is not None:
        return read_rubric_config(found, given["rubric"]).but(given), str(found)
    if not given["model"]:
        raise UsageError("name the judge with --model, or a file of rubrics with --config", field="model")
    options = JudgeOptions(judge_model=given["model"], timeout_s=given["timeout_s"] or 60.0)
    low, high = given["score_min"] or 0.0, 1.0 if given["score_max"] is None else given["score_max"]
    return RubricConfig(given["rubric"], _text(given["rubric"]), options, low, high), ""


def _chosen(records: list[RubricRecord], config: RubricConfig, path: Path) -> list[RubricRecord]:
    """The records that name the rubric."""
    chosen = [record for record in records if record.rubric_id.lower() == config.id.lower()]
    if not chosen:
        raise UsageError(f"No records in {str(path)!r} reference rubric {config.id!r}.")
    return chosen


def _text(rubric: str) -> str:
    if not rubric.startswith("@"):
        return rubric
    text = _bytes(Path(rubric[1:])).decode("utf-8", "replace").strip()
    if not text:
        raise UsageError(f"{rubric[1:]} is empty; write down what is good")
    return text


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _write(path: Path, output: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(output, indent=2, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    click.echo(f"Wrote {path}.")
