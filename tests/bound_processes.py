"""Processes that end with the tests that started them, also where these are killed before they can clean up."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_BOUND = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, which outlives exec
os.execv(sys.argv[1], sys.argv[1:])
"""


def bound_python(*arguments: str) -> Sequence[str]:
    """A command that runs Python with `arguments`, and is killed by the kernel when its parent is gone."""
    return bound_command(sys.executable, *arguments)


def bound_command(program: str, *arguments: str) -> Sequence[str]:
    """The same for any program, by its path."""
    return (sys.executable, "-I", "-S", "-c", _BOUND, program, *arguments)
