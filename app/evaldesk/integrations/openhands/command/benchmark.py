"""`evaldesk benchmark`: runs the script of an OpenHands benchmark unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import click

from evaldesk.cli import EXIT_ERRORS
from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.command.evaluation import evaluation_root, run_evaluation
from evaldesk.integrations.openhands.command.script import SHIMS, ScriptError, run_script
from evaldesk.secrets import scrub
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--score-key",
    metavar="KEY",
    help="The key of test_result that says 1 or 0; success, or the critic of an Evaluation. Options of ours stand "
    "before SCRIPT.",
)
@click.option(
    "--image",
    metavar="NAME",
    help="Run its commands in containers of this image; `instance`: of the `base_container_image` of each instance.",
)
@click.option(
    "--python",
    metavar="FILE",
    help="The interpreter with openhands-sdk, for a script with an Evaluation; default: .venv of its checkout.",
)
@click.option("--local", "is_local", is_flag=True, help="Run an Evaluation in a folder of this machine, as you.")
@click.option("--shims", "is_shims", is_flag=True, help="Print a folder for PYTHONPATH, for plain `python SCRIPT`.")
@click.option("--debug", is_flag=True, hidden=True, expose_value=False)  # the trace of a script is shown anyway
@click.argument("script", metavar="SCRIPT", required=False, type=click.Path(path_type=Path))
@click.argument("arguments", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def benchmark(
    score_key: str | None,
    image: str | None,
    python: str | None,
    is_local: bool,
    is_shims: bool,
    script: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Run the SCRIPT of an OpenHands benchmark, such as run_infer.py, unchanged.

    The imports `openhands` and `evaluation.utils.shared` find stand-ins where OpenHands is not installed.
    `run_evaluation` plays the instances in this workspace and writes `output.jsonl`.
    A script with an `Evaluation`, of the benchmarks on OpenHands' SDK, runs on the interpreter of its checkout;
    attempts are trials, and the critic is a metric.

    \b
    evaldesk benchmark benchmarks/swebench/run_infer.py .llm_config/example.json --n-critic-runs 3
    evaldesk benchmark --score-key resolved run_infer.py -l eval_gpt -i 30 --eval-n-limit 10 --eval-num-workers 4
    evaldesk benchmark --image instance run_infer.py -l eval_gpt -i 30
    PYTHONPATH="$(evaldesk benchmark --shims)" python run_infer.py -l eval_gpt -i 30
    """
    if is_shims:
        show(str(SHIMS))
        return
    if script is None:
        raise UsageError("name the script of the benchmark, such as evaldesk benchmark run_infer.py -l eval_gpt")
    root = evaluation_root(script)
    if root:
        if image:
            raise UsageError("--image: an Evaluation makes its own workspaces; choose them by its option --workspace")
        raise SystemExit(run_evaluation(root, script, arguments, python=python, score_key=score_key, is_local=is_local))
    if python or is_local:
        raise UsageError("--python and --local are for a script with an Evaluation; leave them out")
    try:
        run_script(script, arguments, score_key or "success", image)
    except ScriptError as error:
        show(f"evaldesk: {script} broke off:\n{printable(scrub(error.trace, os.environ))}", err=True, nl=False)
        raise SystemExit(EXIT_ERRORS) from None
