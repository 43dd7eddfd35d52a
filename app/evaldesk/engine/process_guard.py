"""What a worker does to its own process, so that it neither outlives its parent nor mixes prints with frames."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import BinaryIO

from evaldesk.engine.open_files import allow_open_files
from evaldesk.engine.output import STDERR

STUCK_S = 45.0
NICENESS = 5

_PR_SET_PDEATHSIG = 1


def take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the frames alone: user code finds nothing on 0, and its 1 is 2."""
    frames_in, frames_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(STDERR, 1)
    return os.fdopen(frames_in, "rb", buffering=0), os.fdopen(frames_out, "wb", buffering=0)


def guard_process(parent_pid: int) -> None:
    """End with the parent, leave no core file, and let the pages of the server go first."""
    signal.signal(signal.SIGTERM, lambda *_: end_with_group())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allow_open_files()
    with suppress(OSError):
        os.nice(NICENESS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        end_with_group()
    rearm_guard()


def rearm_guard() -> None:
    """Put off by STUCK_S the moment at which a thread without need of the GIL ends this process, saying where it is."""
    faulthandler.dump_traceback_later(STUCK_S, exit=True, file=STDERR)


def end_with_group() -> None:
    """End this process and its children at once."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
