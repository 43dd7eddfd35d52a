"""The script of an OpenHands benchmark, run as it is: its imports are served and its runs are played here."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from evaldesk.agents.standins import install
from evaldesk.agents.traces import error_words, user_trace
from evaldesk.errors import AgentError, EvaldeskError, UsageError
from evaldesk.integrations.openhands import standins

SHIMS = Path(standins.__file__).parent / "shims"
"""A folder for PYTHONPATH, with which `python SCRIPT` finds the stand-ins where OpenHands is not installed."""


class ScriptError(AgentError):
    """The script raised; `trace` as Python would print it."""


def run_script(path: Path, arguments: Sequence[str], score_key: str, image: str | None) -> None:
    """Run the script as `python path arguments` does; `score_key` of a test result decides the verdict.

    The commands of its runtimes run in containers of `image`, where one is named. Raises UsageError when there is no
    such file, ScriptError when the script raises, and the errors of Evaldesk.
    """
    from evaldesk.integrations.openhands.run_facts import COMMAND_IMAGE, SCORE_KEY

    if not path.is_file():
        raise UsageError(f"{path} is not a file; name the script of the benchmark, such as run_infer.py")
    install(*standins.PACKAGES)
    os.environ[SCORE_KEY] = score_key
    if image:
        os.environ[COMMAND_IMAGE] = image
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except EvaldeskError:
        raise
    except Exception as error:
        raise ScriptError(error_words(error), trace=user_trace(error)) from error
