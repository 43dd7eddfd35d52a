"""`evaldesk benchmark`: runs the script of an OpenHands benchmark unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import click

from evaldesk.cli import EXIT_ERRORS
from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.command.script import SHIMS, ScriptError, run_script
from evaldesk.secrets import scrub
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--score-key",
    metavar="KEY",
    default="success",
    show_default=True,
    help="The key of test_result that says 1 or 0. Options of ours stand before SCRIPT.",
)
@click.option(
    "--image",
    metavar="NAME",
    help="Run its commands in containers of this image; `instance`: of the `base_container_image` of each instance.",
)
@click.option("--shims", "is_shims", is_flag=True, help="Print a folder for PYTHONPATH, for plain `python SCRIPT`.")
@click.option("--debug", is_flag=True, hidden=True, expose_value=False)  # the trace of a script is shown anyway
@click.argument("script", metavar="SCRIPT", required=False, type=click.Path(path_type=Path))
@click.argument("arguments", metavar="[ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
def benchmark(
    score_key: str, image: str | None, is_shims: bool, script: Path | None, arguments: tuple[str, ...]
) -> None:
    """Run the SCRIPT of an OpenHands benchmark, such as run_infer.py, unchanged.

    The imports `openhands` and `evaluation.utils.shared` find stand-ins where OpenHands is not installed.
    `run_evaluation` plays the instances in this workspace and writes `output.jsonl`.

    \b
    evaldesk benchmark --score-key resolved run_infer.py -l eval_gpt -i 30 --eval-n-limit 10 --eval-num-workers 4
    evaldesk benchmark --image instance run_infer.py -l eval_gpt -i 30
    PYTHONPATH="$(evaldesk benchmark --shims)" python run_infer.py -l eval_gpt -i 30
    """
    if is_shims:
        show(str(SHIMS))
        return
    if script is None:
        raise UsageError("name the script of the benchmark, such as evaldesk benchmark run_infer.py -l eval_gpt")
    try:
        run_script(script, arguments, score_key, image)
    except ScriptError as error:
        show(f"evaldesk: {script} broke off:\n{printable(scrub(error.trace, os.environ))}", err=True, nl=False)
        raise SystemExit(EXIT_ERRORS) from None
