"""What Ctrl-C, or the end of a worker of pytest-xdist, leaves behind: nothing."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest
from tests.bound_processes import bound_python

PATIENCE_S = 300.0
STARTS_A_DESK = """
import subprocess, sys
subprocess.Popen(sys.argv[1:])
sys.stdin.read()
"""
SERVES = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_desk_ends_with_the_worker_that_started_it() -> None:
    command = (sys.executable, "-c", STARTS_A_DESK, *bound_python("-c", SERVES))
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    desk = int(worker.stdout.readline())

    watched = os.pidfd_open(desk)
    was_alive = not _has_ended(watched, 0)
    worker.kill()
    worker.communicate()

    assert was_alive
    assert _has_ended(watched, PATIENCE_S)
    os.close(watched)


def _has_ended(process: int, timeout_s: float) -> bool:
    """Whether the process of this descriptor has ended by then."""
    return bool(select.select([process], [], [], timeout_s)[0])
