"""`evaldesk eval --benchmark module:process_instance -d instances.jsonl`, as an OpenHands benchmark.

(reference/openhands_tau.md sections 1 to 4)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evaldesk.agents import agent_ref
from evaldesk.cli.eval_outcome import play_and_judge
from evaldesk.cli.eval_request import EvalRequest, Job
from evaldesk.cli.openhands_output import InstanceOutput, metadata_of, output_folder
from evaldesk.desk.given_criteria import given_criteria
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.formats.json_lines import read_lines
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, Turn
from evaldesk.paths import did_you_mean

DEFAULT_ITERATIONS = 30
SAMPLE_SEED = 42  # that of OpenHands, so that the same instances are drawn
QUESTIONS = ("instruction", "question", "problem_statement", "prompt")


def eval_openhands(request: EvalRequest) -> int:
    """Process the instances that `output.jsonl` does not have yet; gives the exit code."""
    if not request.dataset:
        raise UsageError("--benchmark needs -d: the instances, such as -d instances.jsonl")
    if request.words or request.module:
        raise UsageError("the benchmark is named by --benchmark and the instances by -d; leave the rest out")
    path = Path(request.dataset)
    evalset = read_instances(path)
    chosen = _chosen(evalset, request)
    metadata = metadata_of(request, path.stem, request.max_iterations or DEFAULT_ITERATIONS)
    folder = output_folder(request, metadata)
    output = InstanceOutput(folder, metadata, evalset, n=request.n)
    todo = [case_id for case_id in chosen if case_id not in output.finished]
    if not todo:
        every = "The one instance is" if len(chosen) == 1 else f"All {len(chosen):,} instances are"
        click.echo(f"{every} done already; nothing to do. Output: {output.place}")
        return 0
    if output.finished:
        click.echo(
            f"{len(chosen) - len(todo):,} of {len(chosen):,} instances are done; going on with the rest.", err=True
        )
    agent = _agent(request, metadata, folder)
    options = replace(
        request.options(tuple(todo), _criteria(request)),
        concurrency=request.eval_num_workers or request.concurrency or 4,
    )
    job = Job(agent, evalset, path, options, on_progress=output.update)
    code = play_and_judge(request, [job])
    if output.place:
        click.echo(f"Output: {output.place}", err=request.is_json)
    return code


def read_instances(path: Path) -> EvalSet:
    """Rows with `instance_id` as cases; every column is kept. Raises UsageError, FormatError with the line."""
    if not path.is_file():
        hint = did_you_mean(path, "name the instances, one JSON object a line")
        raise UsageError(f"{path} is not a file; {hint}")
    cases: dict[str, Case] = {}
    for line in read_lines(path.read_bytes(), str(path)):
        row = line.value
        if not isinstance(row, dict) or not isinstance(row.get("instance_id"), str | int):
            raise line.error("wanted an object with instance_id")
        case = _case(row)
        if case.id in cases:
            raise line.error(f"the instance_id {case.id!r} is there twice")
        cases[case.id] = case
    if not cases:
        raise UsageError(f"{path} holds no instance")
    return EvalSet(path.stem, cases=tuple(cases.values()))


def _case(row: dict[str, Any]) -> Case:
    query = next((row[name] for name in QUESTIONS if isinstance(row.get(name), str)), str(row["instance_id"]))
    return Case(str(row["instance_id"]), (Turn(query),), extra=row)


def _chosen(evalset: EvalSet, request: EvalRequest) -> list[str]:
    """The ids to process: those named, else a sample of `--eval-n-limit`, else all."""
    ids = [case.id for case in evalset.cases]
    if request.eval_ids:
        named = [name.strip() for name in request.eval_ids.split(",") if name.strip()]
        for name in named:
            if name not in ids:
                raise NotFoundError.among("instance", name, ids)
        return named
    if not request.eval_n_limit or request.eval_n_limit >= len(ids):
        return ids
    import pandas as pd

    drawn = pd.Series(ids).sample(request.eval_n_limit, random_state=SAMPLE_SEED)
    return [str(each) for each in drawn]


def _criteria(request: EvalRequest) -> tuple[Criterion, ...]:
    if request.criteria:
        return request.named_criteria
    if request.config_file_path:
        return given_criteria(request.config_file_path)
    return (Criterion("reported_value", 1.0, {"path": f"test_result.{request.score_key}"}),)


def _agent(request: EvalRequest, metadata: dict[str, Any], folder: Path) -> AgentRef:
    from evaldesk.agents.benchmark import KIND, declared_options

    named = {
        "llm": request.llm_config or "",
        "config_file": str(Path(request.config_file).resolve()),
        "max_iterations": metadata["max_iterations"],
        "dataset": metadata["dataset"],
        "note": request.eval_note or "",
        "output_folder": str(folder),
    }
    return replace(agent_ref(str(request.benchmark)), kind=KIND, declared=declared_options(**named))
