"""Process groups that must not outlive this process, however it ends.

A small process of its own is told of each group. When this process is gone, killed or not, its pipe closes, and it
kills the groups that are left.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from evaldesk.process_setup import WORKER_VARIABLE, mark_process

CLOSE_S = 1.0

_GUARD = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

# Trial threads share one guard; a line of one must not be cut by that of another (decision 099).
_lock = threading.Lock()
_guard: subprocess.Popen[bytes] | None = None


def watch(group: int) -> None:
    """Have the group killed when this process ends."""
    _write(f"+{group}")


def end_group(group: int) -> None:
    """Kill the group, which this process started, and forget it."""
    kill_group(group)
    _write(f"-{group}")


def kill_group(group: int) -> None:
    """Kill a process group that this process started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _write(line: str) -> None:
    with _lock:
        guard = _running_guard()
        with suppress(OSError, ValueError):  # a guard that was killed guards nothing; the groups still end in order
            if guard.stdin:
                guard.stdin.write(f"{line}\n".encode())
                guard.stdin.flush()


def _running_guard() -> subprocess.Popen[bytes]:
    global _guard  # noqa: PLW0603 - one for the process
    if _guard is None:
        _guard = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != WORKER_VARIABLE},  # outlives its worker
        )
        mark_process(_guard.pid, "")
        atexit.register(_close, _guard)
    return _guard


def _close(guard: subprocess.Popen[bytes]) -> None:
    """Let it end the groups that are left, and see it go."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        if guard.stdin:
            guard.stdin.close()
        guard.wait(CLOSE_S)
