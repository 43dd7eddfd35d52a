"""Benchmarks of OpenHands' SDK (V1): a subclass of `Evaluation`, with this engine in the place of its own runner.

Runs on the interpreter of the benchmark, so it needs the standard library alone:
`PYTHON boot.py --module evaldesk.integrations.openhands.evaluation SCRIPT ARGUMENTS`.
The script runs unchanged up to `Evaluation.run`. There the instances become the rows of `evaldesk eval --benchmark`,
whose players run the script again for one attempt each. (OpenHands/benchmarks benchmarks/utils/evaluation.py;
reference/openhands_tau.md section 3)
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaldesk.integrations.openhands.metadata import Evaluation
from evaldesk.integrations.openhands.run_facts import KEY_VARIABLE
from evaldesk.wording.printable import in_one_line

HARNESS = "benchmarks.utils.evaluation"
REQUEST = "EVALDESK_EVALUATION"
"""The variable with the request of the command, as JSON: how `evaldesk` is started, and its own options."""
ATTEMPTS = ("--n-critic-runs", "--max-attempts")
"""The argument for the attempts of an instance, in newer and older checkouts."""
OUTPUT = "output.jsonl"
ERROR_EXIT_CODES = (2, 130)
"""Exit codes of a refused or interrupted run; a failed gate is no error of the script."""
TEMPERATURE = 0.1
"""That of a further attempt of a model at 0, as the harness sets it."""


def main() -> None:
    """Run the script up to `Evaluation.run`, play its instances, and let it go on with their outputs."""
    script, arguments = sys.argv[3], sys.argv[4:]
    request = json.loads(os.environ.pop(REQUEST))

    def run(evaluation: Any, *, on_result: Callable[[Any, Any], None] | None = None, **_: Any) -> list[Any]:
        return _play(evaluation, arguments, request, on_result)

    run_with(request["root"], request["module"], [script, *arguments], run)


def run_with(root: str, module: str, argv: Sequence[str], run: Callable[..., Any]) -> None:
    """Run the module as a script, with `run` as the method of every Evaluation."""
    sys.path[:] = [root, *(entry for entry in sys.path if entry != root)]
    importlib.import_module(HARNESS).Evaluation.run = run
    sys.argv = [*argv]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _play(
    evaluation: Any, arguments: Sequence[str], request: Mapping[str, Any], on_result: Callable[[Any, Any], None] | None
) -> list[Any]:
    """Play every instance by `evaldesk eval`; the outputs that the critic chose. Raises SystemExit."""
    instances, metadata = {str(each.id): each for each in evaluation.prepare_instances()}, evaluation.metadata
    output = Path(metadata.eval_output_dir, OUTPUT)
    if not instances:
        return []
    rows, has_own_id = _rows(instances.values())
    with tempfile.TemporaryDirectory(prefix="evaldesk-evaluation-") as work:
        dataset = str(getattr(metadata, "dataset", "") or "instances").replace("/", "__")
        dataset_file, facts = Path(work, f"{dataset}.jsonl"), Path(work, "metadata.json")
        dataset_file.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), "utf-8")
        facts.write_text(json.dumps({**_dump(metadata), "dataset": dataset}, default=str), "utf-8")
        script = {
            "module": request["module"],
            "arguments": [sys.argv[0], *arguments],
            "folder": os.getcwd(),
            "is_local": request["is_local"],
            "has_own_id": has_own_id,
            "has_critic": getattr(metadata, "critic", None) is not None,
        }
        command = [*request["evaldesk"], "eval", "--benchmark", f"{request['module']}:{type(evaluation).__name__}"]
        command += ["-d", str(dataset_file), "--python", sys.executable, "--eval-metadata", str(facts)]
        command += ["--evaluation", json.dumps(script)]
        command += ["--eval-num-workers", str(max(1, int(getattr(evaluation, "num_workers", 1) or 1)))]
        command += ["--n", str(_n_attempts(metadata, arguments))]
        command += ["--score-key", request["score_key"]] if request["score_key"] else []
        code = subprocess.run(command, env=_environment(metadata), cwd=request["root"], check=False).returncode
    if code in ERROR_EXIT_CODES:
        raise SystemExit(code)
    return _results(instances, output, on_result)


def _rows(instances: Any) -> tuple[list[dict[str, Any]], bool]:
    """The data of each instance with its id, and whether they have it of their own."""
    pairs = [(str(each.id), dict(each.data)) for each in instances]
    has_own_id = all(str(data.get("instance_id")) == name for name, data in pairs)
    return [{**data, "instance_id": data["instance_id"] if has_own_id else name} for name, data in pairs], has_own_id


def _n_attempts(metadata: Any, arguments: Sequence[str]) -> int:
    """The attempts that a person asks for. The harness makes its default of three only where a critic refuses."""
    is_given = any(each.partition("=")[0] in ATTEMPTS for each in arguments)
    n = getattr(metadata, "n_critic_runs", None) or getattr(metadata, "max_attempts", None) or 1
    return int(n) if is_given else 1


def _dump(value: Any) -> dict[str, Any]:
    """The fields of a model of pydantic, without its keys."""
    dump: dict[str, Any] = json.loads(value.model_dump_json())
    return dump


def _environment(metadata: Any) -> dict[str, str]:
    """The environment with the key of the model, so that it is masked wherever it is written."""
    llm: Any = getattr(metadata, "llm", None)
    key: Any = getattr(llm, "api_key", None)
    text = key.get_secret_value() if hasattr(key, "get_secret_value") else key
    return {**os.environ, KEY_VARIABLE: text} if isinstance(text, str) and text else dict(os.environ)


def _results(instances: Mapping[str, Any], output: Path, on_result: Callable[[Any, Any], None] | None) -> list[Any]:
    """The outputs in `output`, each given to `on_result`."""
    text = output.read_bytes() if output.is_file() else b""
    output_type = _harness_type("EvalOutput")
    results = []
    for line in text.splitlines():
        row = json.loads(line)
        try:
            result = output_type.model_validate(row)
        except Exception as error:  # of a type that is the benchmark's own
            words = f"{output}: the row of {row.get('instance_id')} cannot be read as EvalOutput: {error}"
            sys.stderr.write(f"{in_one_line(words)}\n")
            continue
        results.append(result)
        if on_result and str(result.instance_id) in instances:
            on_result(instances[str(result.instance_id)], result)
    if output.is_file() and output.read_bytes() != text:
        copy = output.with_name(f".{output.name}")
        copy.write_bytes(text)
        copy.replace(output)
    return results


def _harness_type(name: str) -> Any:
    """A type of the harness: beside `Evaluation`, or in its module of models."""
    harness = sys.modules[HARNESS]
    return getattr(harness, name, None) or getattr(importlib.import_module("benchmarks.utils.models"), name)


class _AttemptDone(BaseException):
    """Leaves the script once its attempt has an output; no handler of exceptions in the script takes it."""


def attempt(
    root: str,
    script: Evaluation,
    row: Mapping[str, Any],
    *,
    number: int,
    folder: str,
    on_ready: Callable[[], None],
    log: Callable[[str], None],
) -> tuple[Any, dict[str, Any]]:
    """The EvalOutput of one attempt at the instance of `row`, and the critic's result as `critic`; `number` is from 1.

    `on_ready` is called when the script has made its evaluation. Exceptions of the benchmark pass through after its
    own retries.
    """
    os.chdir(script.folder)
    ends: list[tuple[Any, dict[str, Any]]] = []

    def run(evaluation: Any, **_: Any) -> None:
        on_ready()
        workspace = folder if script.is_local else ""
        output = _evaluate(evaluation, _instance(row, has_own_id=script.has_own_id), number, workspace, log)
        ends.append((output, _critic_result(getattr(evaluation.metadata, "critic", None), output)))
        raise _AttemptDone

    try:
        run_with(root, script.module, script.arguments, run)
    except _AttemptDone:
        return ends[0]
    raise RuntimeError(f"{script.arguments[0]} ended without a call of Evaluation.run")


def _instance(row: Mapping[str, Any], *, has_own_id: bool) -> Any:
    data = {key: value for key, value in row.items() if has_own_id or key != "instance_id"}
    return _harness_type("EvalInstance")(id=str(row["instance_id"]), data=data)


def _evaluate(evaluation: Any, instance: Any, number: int, folder: str, log: Callable[[str], None]) -> Any:
    """The output of an attempt, in a new workspace for each retry. The last exception passes through."""
    metadata = evaluation.metadata
    evaluation.current_attempt = number
    llm: Any = getattr(metadata, "llm", None)
    if number > 1 and getattr(llm, "temperature", None) == 0:
        metadata.llm = llm.model_copy(update={"temperature": TEMPERATURE})
    n_retries = int(getattr(metadata, "max_retries", 0) or 0)
    for n_failed in range(n_retries + 1):
        try:
            with _workspace(evaluation, instance, folder, n_failed) as workspace:
                output = evaluation.evaluate_instance(instance, workspace)
            if hasattr(output, "attempt"):
                output.attempt = number
            return output
        except Exception as error:
            if n_failed == n_retries:
                raise
            log(f"Retry {n_failed + 1} of {n_retries} after {type(error).__name__}: {error}")
    raise AssertionError


@contextmanager
def _workspace(evaluation: Any, instance: Any, folder: str, n_failed: int) -> Iterator[Any]:
    """The workspace of the benchmark, or the SDK's local one in `folder`; it is always closed."""
    if folder:
        workspace = importlib.import_module("openhands.sdk.workspace").LocalWorkspace(working_dir=folder)
    else:
        names = inspect.signature(evaluation.prepare_workspace).parameters
        factor = getattr(evaluation.metadata, "base_resource_factor", 1) * 2**n_failed
        options = {"resource_factor": min(factor, getattr(evaluation.metadata, "max_resource_factor", 8))}
        parameters = {name: value for name, value in options.items() if name in names}
        workspace = evaluation.prepare_workspace(instance, **parameters)
    try:
        yield workspace
    finally:
        if hasattr(workspace, "__exit__"):
            workspace.__exit__(None, None, None)


def _critic_result(critic: Any, output: Any) -> dict[str, Any]:
    """The critic's score of an output, as a report; empty without a critic. Its exceptions pass through."""
    if critic is None or getattr(output, "error", None):
        return {}
    history = list(getattr(output, "history", None) or ())
    try:
        kind = importlib.import_module("openhands.sdk.event").LLMConvertibleEvent
        history = [event for event in history if isinstance(event, kind)]
    except (ImportError, AttributeError):
        pass
    result = critic.evaluate(history, (output.test_result or {}).get("git_patch"))
    return {"critic": {"score": result.score, "success": bool(result.success), "message": result.message}}


if __name__ == "__main__":
    main()
