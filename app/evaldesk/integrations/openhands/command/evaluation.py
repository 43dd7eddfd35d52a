"""The script of a benchmark on OpenHands' SDK (V1), started on the interpreter of its checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from evaldesk.engine import boot
from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.evaluation import HARNESS, REQUEST

MODULE = "evaldesk.integrations.openhands.evaluation"
OLDEST_OF_SDK = (3, 12)
_FIND_SDK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('openhands.sdk') is None)"
"""Without an import, which takes seconds and is made by the script anyway."""


def evaluation_root(script: Path) -> Path | None:
    """The checkout around the script whose harness has `Evaluation`; None for other scripts."""
    place = Path(*HARNESS.split(".")).with_suffix(".py")
    folders = script.resolve().parents if script.is_file() else ()
    return next((folder for folder in folders if (folder / place).is_file()), None)


def run_evaluation(
    root: Path, script: Path, arguments: Sequence[str], *, python: str | None, score_key: str | None, is_local: bool
) -> int:
    """Run the script with this engine as its runner; its exit code. Raises UsageError where the SDK is not installed.

    With `is_local` the workspace of each attempt is a folder of this machine.
    """
    parts = script.resolve().with_suffix("").relative_to(root).parts
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"{script} cannot be imported from {root}: a part of its path cannot be the name of a module")
    interpreter = python or _own_interpreter(root)
    _check_sdk(interpreter, root)
    request = {
        "root": str(root),
        "module": ".".join(parts),
        "evaldesk": [sys.executable, "-P", "-m", "evaldesk"],
        "score_key": score_key or "",
        "is_local": is_local,
    }
    command = [interpreter, boot.__file__, "--module", MODULE, str(script), *arguments]
    return subprocess.run(command, env={**os.environ, REQUEST: json.dumps(request)}, check=False).returncode


def _own_interpreter(root: Path) -> str:
    """The interpreter in the `.venv` of the checkout, else Evaldesk's own."""
    own = root / ".venv" / "bin" / "python"
    return str(own) if own.is_file() else sys.executable


def _check_sdk(interpreter: str, root: Path) -> None:
    """Raise UsageError, with the next step, unless the interpreter imports openhands.sdk."""
    try:
        check = subprocess.run(
            [interpreter, "-c", _FIND_SDK],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise UsageError(
            f"--python {interpreter}: {error.strerror}; name the interpreter with openhands-sdk"
        ) from error
    if check.returncode == 0:
        return
    reason = (check.stderr.strip().splitlines() or ["no module of that name"])[-1]
    step = f"make it with `uv sync` in {root}, or name an interpreter that has openhands-sdk by --python"
    needed = ".".join(map(str, OLDEST_OF_SDK))
    raise UsageError(f"{interpreter} cannot import openhands.sdk: {reason}. It needs Python {needed} or newer; {step}")
