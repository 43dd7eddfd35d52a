"""`evaldesk eval --benchmark bench:process_instance -d instances.jsonl`, as a benchmark of OpenHands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaldesk.cli.eval.outcome import play_and_judge
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.desk.criteria.criteria import given_criteria
from evaldesk.desk.imports.files import json_of
from evaldesk.desk.runs.rows import chosen_rows
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.integrations.openhands.command.options import OpenHandsOptions
from evaldesk.integrations.openhands.command.output import (
    AttemptOutput,
    InstanceOutput,
    benchmark_agent,
    masked_profile,
    metadata_of,
    output_folder,
    placed_benchmark,
    read_instances,
)
from evaldesk.model import Criterion, EvalSet, JsonObject
from evaldesk.run_options import BY_NAME
from evaldesk.wording.writer import show

DEFAULT_ROOT = "evaluation/evaluation_outputs/outputs"
DEFAULT_ITERATIONS = 30
DEFAULT_SCORE_KEY = "success"
CRITIC_THRESHOLD = 0.5
"""Of a success, in openhands.sdk.critic."""
SAMPLE_SEED = 42  # that of OpenHands, so that the same instances are drawn
TRIAL = BY_NAME["timeout_s"]


def eval_openhands(request: EvalRequest) -> int:
    """Process the instances that `output.jsonl` does not have yet; gives the exit code."""
    form = OpenHandsOptions(**request.tool_options)
    if not form.dataset:
        raise UsageError("--benchmark needs -d: the instances, such as -d instances.jsonl")
    if request.words or request.is_mixed:
        raise UsageError("the benchmark is named by --benchmark and the instances by -d; leave the rest out")
    script: JsonObject = json.loads(form.evaluation) if form.evaluation else {}
    if request.python and not script:
        raise UsageError("--python: the stand-ins of a benchmark run on Evaldesk's own interpreter; leave it out")
    path = Path(form.dataset)
    evalset = read_instances(path)
    instance_ids = _choose_instances(evalset, form, request.rows)
    metadata = metadata_of(path.stem, form.max_iterations or DEFAULT_ITERATIONS, _llm_config(request, form))
    root, note = Path(form.eval_output_dir or DEFAULT_ROOT), form.eval_note or ""
    script_metadata = _given_metadata(form.eval_metadata)
    metadata = {**metadata, **script_metadata}
    folder = Path(script_metadata["eval_output_dir"]) if script_metadata else output_folder(root, metadata, note)
    if request.value("budget"):
        raise UsageError("--budget is not for benchmarks: each instance is played --n times", field="budget")
    output_type = AttemptOutput if script else InstanceOutput
    output = output_type(folder, metadata, evalset, n=request.value("n"))
    todo = [case_id for case_id in instance_ids if case_id not in output.finished_ids]
    if not todo:
        every = "The one instance is" if len(instance_ids) == 1 else f"All {len(instance_ids):,} instances are"
        show(f"{every} done already; nothing to do. Output: {output.place}")
        return 0
    if output.finished_ids:
        show(
            f"{len(instance_ids) - len(todo):,} of {len(instance_ids):,} instances are done; continuing with the rest.",
            err=True,
        )
    agent = benchmark_agent(
        placed_benchmark(
            str(form.benchmark),
            request.settings(),
            request.image,
            request.value("environment"),
            form.command_image,
            is_script=bool(script_metadata),
            python=request.python,
        ),
        folder,
        metadata,
        llm=form.llm_config or "",
        config_file=Path(form.config_file),
        note=note,
        script_metadata={} if script else script_metadata,
        script=script,
    )
    options = request.options(tuple(todo), _criteria(request, form.score_key, script)).but(rows=None)
    if (
        script_metadata
        and "timeout_s" not in request.run_options
        and request.settings().limits.trial_timeout_s == TRIAL.default
    ):
        options = options.but(timeout_s=TRIAL.high)  # run_evaluation has no limit unless the script gives it one
    code = play_and_judge(request, [Job(agent, evalset, path, options, on_progress=output.update)])
    output.finish()
    if output.place:
        show(f"Output: {output.place}", err=request.is_json)
    return code


def _given_metadata(path: str | None) -> dict[str, Any]:
    """The EvalMetadata that the script of a benchmark wrote; empty without one. Raises FormatError."""
    metadata = json_of(Path(path)) if path else {}
    if not isinstance(metadata, dict):
        raise UsageError(f"--eval-metadata {path}: not a JSON object; name the metadata of a run of OpenHands")
    return metadata


def _llm_config(request: EvalRequest, form: OpenHandsOptions) -> dict[str, Any]:
    if form.llm_config:
        return masked_profile(Path(form.config_file), form.llm_config)
    model, url = request.run_options.get("model") or "none", request.run_options.get("base_url")
    return {"model": model, "base_url": url, "api_key": None}


def _choose_instances(evalset: EvalSet, form: OpenHandsOptions, rows: str | None) -> list[str]:
    """The ids to process: those named, else a sample of `--eval-n-limit`, else all."""
    ids = [case.id for case in evalset.cases]
    if rows is not None:
        if form.eval_ids or form.eval_n_limit:
            raise UsageError("--rows, --eval-ids and --eval-n-limit: choose the instances by one of them")
        return list(chosen_rows(evalset.cases, rows))
    if form.eval_ids:
        names = [name.strip() for name in form.eval_ids.split(",") if name.strip()]
        for name in names:
            if name not in ids:
                raise NotFoundError.among("instance", name, ids)
        return names
    if not form.eval_n_limit or form.eval_n_limit >= len(ids):
        return ids
    import pandas as pd

    sample = pd.Series(ids).sample(form.eval_n_limit, random_state=SAMPLE_SEED)
    return [str(each) for each in sample]


def _criteria(request: EvalRequest, score_key: str | None, script: JsonObject) -> tuple[Criterion, ...]:
    """The criteria as they were given, else the key of the test result; the critic of an `Evaluation` beside it.

    The critic decides where no key is named, since the score of such a benchmark is often computed later.
    """
    if request.criteria:
        return request.named_criteria
    if request.config_file_path:
        return given_criteria(request.config_file_path)
    if not script or not script.get("has_critic"):
        return (Criterion("reported_value", 1.0, {"path": f"test_result.{score_key or DEFAULT_SCORE_KEY}"}),)
    critic = Criterion("reported_value/critic", None if score_key else CRITIC_THRESHOLD, {"path": "critic.score"})
    if not score_key:
        return (critic,)
    return (Criterion("reported_value", 1.0, {"path": f"test_result.{score_key}"}), critic)
