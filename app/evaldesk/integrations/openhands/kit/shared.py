"""`evaluation.utils.shared` of OpenHands: metadata, outputs, and the functions of a benchmark's script.

(All-Hands-AI/OpenHands evaluation/utils/shared.py; reference/openhands_tau.md sections 1 and 2)
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.kit.config import LLMConfig, OpenHandsConfig, SandboxConfig
from evaldesk.integrations.openhands.kit.events import Event, MessageAction, event_to_dict, get_pairs_from_events
from evaldesk.integrations.openhands.kit.logger import openhands_logger
from evaldesk.integrations.openhands.kit.state import State
from evaldesk.integrations.openhands.run_facts import COMMAND_IMAGE, KEY_VARIABLE, SCORE_KEY, git_commit, start_time

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EvalException",
    "EvalMetadata",
    "EvalOutput",
    "EvalTimeoutException",
    "assert_and_raise",
    "codeact_user_response",
    "compatibility_for_eval_history_pairs",
    "get_default_sandbox_config_for_eval",
    "get_metrics",
    "get_openhands_config_for_eval",
    "is_fatal_evaluation_error",
    "is_fatal_runtime_error",
    "make_metadata",
    "prepare_dataset",
    "reset_logger_for_multiprocessing",
    "run_evaluation",
    "update_llm_config_for_completions_logging",
]

SEED = 42
"""The seed of OpenHands for samples of instances."""
OUTPUT_FILE = "output.jsonl"
_CONTINUE = (
    "Please go on with the task in the way that you think best.\n"
    "When you have solved it, send your answer as a message and call finish.\n"
    "IMPORTANT: never ask for human help.\n"
)
_GIVE_UP = "If you want to give up, call finish.\n"


class EvalException(Exception):  # noqa: N818 - the name of OpenHands
    """A failed evaluation of an instance."""


class EvalTimeoutException(Exception):  # noqa: N818 - the name of OpenHands
    """A timeout of an instance."""


class EvalMetadata(BaseModel):
    """The facts of a run for a benchmark. A dump has no API key, and no additions of Evaldesk.

    `workspace`, `log`, `trial_index` and `seed` are additions, set while an instance is processed.
    """

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, protected_namespaces=())

    agent_class: str
    llm_config: LLMConfig | None = None
    agent_config: Any = None
    max_iterations: int
    eval_output_dir: str = ""
    start_time: str = ""
    git_commit: str = ""
    dataset: str | None = None
    data_split: str | None = None
    details: dict[str, Any] | None = None
    condenser_config: Any = None
    instruction_template_name: str | None = None
    eval_note: str | None = None
    workspace: Any = Field(default=None, exclude=True, repr=False)
    log: Callable[[str], None] = Field(default=print, exclude=True, repr=False)
    trial_index: int = Field(default=0, exclude=True, repr=False)
    seed: int | None = Field(default=None, exclude=True, repr=False)


class EvalOutput(BaseModel):
    """The result of an instance: a line of `output.jsonl`."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True, protected_namespaces=())

    instance_id: str
    test_result: dict[str, Any]
    instruction: str | None = None
    metadata: EvalMetadata | None = None
    history: list[dict[str, Any]] | list[tuple[dict[str, Any], dict[str, Any]]] | None = None
    metrics: dict[str, Any] | None = None
    error: str | None = None
    instance: dict[str, Any] | None = None


def codeact_user_response(
    state: State | None,
    encapsulate_solution: bool = False,
    try_parse: Callable[[Any], str | None] | None = None,
) -> str:
    """The user of most benchmarks: asks to continue, and from the second message on offers to give up.

    With `try_parse` the user leaves (`/exit`) as soon as the last action of the agent holds an answer.
    """
    solution_hint = (
        "Put your final answer, and nothing else, between <solution> and </solution>.\n" if encapsulate_solution else ""
    )
    if state is None or not state.history:
        return _CONTINUE + solution_hint
    if try_parse is not None:
        last = next((event for event in reversed(state.history) if hasattr(event, "action")), None)
        if last is not None and try_parse(last) is not None:
            return "/exit"
    user_messages = [event for event in state.history if isinstance(event, MessageAction) and event.source == "user"]
    return _CONTINUE + solution_hint + (_GIVE_UP if len(user_messages) >= 2 else "")


def compatibility_for_eval_history_pairs(history: Sequence[Event]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The history as pairs of an action and its observation."""
    return [
        (event_to_dict(action), event_to_dict(observation)) for action, observation in get_pairs_from_events(history)
    ]


def get_metrics(state: State) -> dict[str, Any]:
    """The metrics of a run."""
    return state.metrics.get() if state.metrics else {}


def get_default_sandbox_config_for_eval() -> SandboxConfig:
    """The sandbox of most benchmarks: 300 seconds for a command."""
    return SandboxConfig(timeout=300)


def get_openhands_config_for_eval(
    metadata: EvalMetadata | None = None,
    sandbox_config: SandboxConfig | None = None,
    **options: Any,
) -> OpenHandsConfig:
    """The configuration of most benchmarks, with the agent and the iterations of `metadata`."""
    settings = {name: value for name, value in options.items() if value is not None}
    if metadata is not None:
        settings = {"default_agent": metadata.agent_class, "max_iterations": metadata.max_iterations, **settings}
    config = OpenHandsConfig(sandbox=sandbox_config or get_default_sandbox_config_for_eval(), **settings)
    config.set_llm_config(metadata.llm_config if metadata else None)
    return config


def update_llm_config_for_completions_logging(
    llm_config: LLMConfig, eval_output_dir: str, instance_id: str
) -> LLMConfig:
    """The configuration, unchanged: every model call is in the trial's transcript."""
    return llm_config


def assert_and_raise(condition: bool, msg: str) -> None:
    """Raise EvalException with `msg` unless the condition holds."""
    if not condition:
        raise EvalException(msg)


def is_fatal_evaluation_error(error: str | None) -> bool:
    """Whether the error is a failure of the runtime; OpenHands retries those."""
    return is_fatal_runtime_error(error)


def is_fatal_runtime_error(error: str | None) -> bool:
    """Whether the error names a failure of the runtime."""
    return bool(error) and any(name in str(error) for name in ("AgentRuntime", "ConnectionError"))


def reset_logger_for_multiprocessing(logger: logging.Logger, instance_id: str, log_dir: str) -> None:
    """Log the start of an instance; the output of each process is the log of its own trial."""
    logger.info("Starting evaluation for instance %s.", instance_id)


def make_metadata(
    llm_config: LLMConfig,
    dataset_name: str,
    agent_class: str,
    max_iterations: int | None,
    eval_note: str | None,
    eval_output_dir: str,
    data_split: str | None = None,
    details: dict[str, Any] | None = None,
    agent_config: Any = None,
    condenser_config: Any = None,
) -> EvalMetadata:
    """The metadata of a run.

    Its results are in `<root>/<dataset>/<agent>/<model>_maxiter_<N>[_N_<note>]`. Raises SystemExit without a number of
    iterations, which no script has by default.
    """
    if max_iterations is None:
        openhands_logger.error("No number of iterations: add -i N, such as -i 30, the most model calls of an instance")
        raise SystemExit(EXIT_USAGE)
    model = llm_config.model.rpartition("/")[2].replace(":", "_").replace("@", "-")
    note = f"_N_{eval_note}" if eval_note else ""
    folder = Path(eval_output_dir, dataset_name, agent_class, f"{model}_maxiter_{max_iterations}{note}")
    metadata = EvalMetadata(
        agent_class=agent_class,
        llm_config=llm_config,
        agent_config=agent_config,
        max_iterations=max_iterations,
        eval_output_dir=str(folder),
        start_time=start_time(),
        git_commit=git_commit(Path.cwd()),
        dataset=dataset_name,
        data_split=data_split,
        details=details,
        condenser_config=condenser_config,
        instruction_template_name=os.environ.get("INSTRUCTION_TEMPLATE_NAME"),
        eval_note=eval_note,
    )
    openhands_logger.info("Results go to %s", folder)
    return metadata


def prepare_dataset(
    dataset: pd.DataFrame,
    output_file: str,
    eval_n_limit: int | None,
    eval_ids: list[str] | None = None,
    skip_num: int | None = None,
    filter_func: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """The instances to run: `eval_ids`, or a sample with seed 42, without the finished ones in `output_file`.

    Rows of `output_file` with an error are run again. Raises ValueError for an unknown id.
    """
    if "instance_id" not in dataset.columns:
        raise ValueError("Expected 'instance_id' column in the dataset.")
    ids = dataset["instance_id"].astype(str)
    if eval_ids:
        unknown = [each for each in eval_ids if str(each) not in set(ids)]
        if unknown:
            raise ValueError(f"the data set has no instance {', '.join(map(str, unknown))}")
        rows = dataset[ids.isin([str(each) for each in eval_ids])]
    else:
        rows = dataset.iloc[skip_num:] if skip_num and skip_num > 0 else dataset
        if eval_n_limit and eval_n_limit > 0:
            rows = rows.sample(min(eval_n_limit, len(rows)), random_state=SEED, replace=False)
        if filter_func is not None:
            rows = filter_func(rows)
    finished_ids = _finished_ids(Path(output_file))
    remaining_rows = rows[~rows["instance_id"].astype(str).isin(finished_ids)]
    openhands_logger.info(
        "Finished instances: %d, remaining instances: %d", len(rows) - len(remaining_rows), len(remaining_rows)
    )
    return remaining_rows.reset_index(drop=True)


def _finished_ids(path: Path) -> set[str]:
    ids: set[str] = set()
    if not path.is_file():
        return ids
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a last line that was torn
        if isinstance(row, dict) and not row.get("error"):
            ids.add(str(row.get("instance_id")))
    return ids


def run_evaluation(
    dataset: pd.DataFrame,
    metadata: EvalMetadata | None,
    output_file: str,
    num_workers: int,
    process_instance_func: Callable[..., Any],
    max_retries: int = 5,
    timeout_seconds: int | None = None,
) -> CompletedRun:
    """Run the instances by the engine, and write their rows to `output_file`. The result may be awaited."""

    if len(dataset):
        launch(dataset, metadata, Path(output_file), num_workers, process_instance_func, timeout_seconds)
    return CompletedRun()


class CompletedRun:
    """A completed run; awaiting it gives None at once."""

    def __await__(self) -> Any:
        return
        yield


EXIT_USAGE = 2
ERROR_EXIT_CODES = (EXIT_USAGE, 130)
"""Exit codes of a refused or interrupted run; a failed gate is no error of the script."""


def launch(
    dataset: pd.DataFrame,
    metadata: EvalMetadata | None,
    output_file: Path,
    num_workers: int,
    function: Callable[..., Any],
    timeout_s: int | None,
) -> None:
    """Run the instances and wait. Raises UsageError for a function without an importable name, and SystemExit."""
    target, folder = importable(function)
    with tempfile.TemporaryDirectory(prefix="evaldesk-benchmark-") as work:
        rows = Path(work, f"{(metadata.dataset if metadata else '') or 'instances'}.jsonl".replace("/", "_"))
        dataset.to_json(rows, orient="records", lines=True, force_ascii=False)
        command = [sys.executable, "-P", "-m", "evaldesk", "eval", "--benchmark", target, "-d", str(rows)]
        command += ["--eval-num-workers", str(max(1, num_workers))]
        command += ["--score-key", os.environ.get(SCORE_KEY, "success")]
        if image := os.environ.get(COMMAND_IMAGE):
            command += ["--command-image", image]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
        if timeout_s:
            command += ["--timeout", str(timeout_s)]
        if metadata is not None:
            metadata_file = Path(work, "metadata.json")
            run_metadata = metadata.model_copy(update={"eval_output_dir": str(output_file.parent)})
            metadata_file.write_text(run_metadata.model_dump_json(), "utf-8")
            command += ["--eval-metadata", str(metadata_file), "--max-iterations", str(metadata.max_iterations)]
            command += _model(metadata, environment)
        else:
            command += ["--eval-output-dir", str(output_file.parent)]
        code = subprocess.run(command, env=environment, check=False).returncode
    if output_file.name != OUTPUT_FILE and (output := output_file.with_name(OUTPUT_FILE)).is_file():
        output.replace(output_file)
    if code in ERROR_EXIT_CODES:
        raise SystemExit(code)


def _model(metadata: EvalMetadata, environment: dict[str, str]) -> list[str]:
    """The arguments for the model; an API key that is in no file is passed by the environment."""
    config = metadata.llm_config
    if config is None:
        return []
    group, file = config.place
    if group and file:
        return ["--llm-config", group, "--config-file", file]
    if config.api_key:
        environment[KEY_VARIABLE] = config.api_key.get_secret_value()
    return []


def importable(function: Callable[..., Any], modules: Mapping[str, Any] = sys.modules) -> tuple[str, Path]:
    """`module:function` and the folder to import it from. Raises UsageError unless it is at the top of a module."""
    name = getattr(function, "__qualname__", "")
    module = modules.get(getattr(function, "__module__", ""))
    file = getattr(module, "__file__", None)
    if not file or not name or "." in name or "<" in name:
        raise UsageError(
            "run_evaluation: each instance is processed by a process of its own, which imports process_instance; "
            "put it at the top level of its file"
        )
    if function.__module__ != "__main__":
        depth = function.__module__.count(".")
        return f"{function.__module__}:{name}", Path(file).resolve().parents[depth]
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", None):  # python -m
        return f"{spec.name}:{name}", Path(file).resolve().parents[spec.name.count(".")]
    return f"{Path(file).stem}:{name}", Path(file).resolve().parent
