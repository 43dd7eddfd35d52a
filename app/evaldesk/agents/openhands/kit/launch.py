"""From the script of a benchmark to the engine: `run_evaluation` starts `evaldesk eval` on its instances."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaldesk.agents.openhands.kit.shared import FINISHED_FILE, EvalMetadata
from evaldesk.agents.openhands.metadata import COMMAND_IMAGE, KEY_VARIABLE, SCORE_KEY
from evaldesk.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

FAILED = (2, 130)
"""Exit codes of a run that was refused or interrupted; a failed gate is no error of the script."""


def launch(
    dataset: pd.DataFrame,
    metadata: EvalMetadata | None,
    output_file: Path,
    num_workers: int,
    function: Callable[..., Any],
    timeout_s: int | None,
) -> None:
    """Run the instances and wait. Raises UsageError for a function that another process cannot import, SystemExit."""
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
            described = Path(work, "metadata.json")
            given = metadata.model_copy(update={"eval_output_dir": str(output_file.parent)})
            described.write_text(given.model_dump_json(), "utf-8")
            command += ["--eval-metadata", str(described), "--max-iterations", str(metadata.max_iterations)]
            command += _model(metadata, environment)
        else:
            command += ["--eval-output-dir", str(output_file.parent)]
        code = subprocess.run(command, env=environment, check=False).returncode
    if output_file.name != FINISHED_FILE and (written := output_file.with_name(FINISHED_FILE)).is_file():
        written.replace(output_file)
    if code in FAILED:
        raise SystemExit(code)


def _model(metadata: EvalMetadata, environment: dict[str, str]) -> list[str]:
    """The arguments that name the model; a key that is in no file goes through the environment."""
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
    """`module:function` and the folder to import it from. Raises UsageError for one that is at no module's top."""
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
