"""A watchdog that kills orphaned process groups, however this process ends. (decision 099)

The watchdog is a small process that reads the ids of the groups from a pipe. When this process ends, killed or not,
the pipe closes, and the watchdog kills the remaining groups.
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

# Its input ends when the worker dies, even by SIGKILL; then it ends the groups that are left (decision 099).
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


def watch_group(group: int) -> None:
    """Add the group to the watchdog: it is killed when this process ends."""
    _write(f"+{group}")


def end_group(group: int) -> None:
    """Kill a group of this process, and remove it from the watchdog."""
    kill_group(group)
    _write(f"-{group}")


def kill_group(group: int) -> None:
    """Kill a process group of this process (decision 099)."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _write(line: str) -> None:
    with _lock:  # threads must not mix their lines in the pipe
        guard = _running_guard()
        with suppress(OSError, ValueError):  # a guard that was killed guards nothing; the groups still end in order
            if guard.stdin:
                guard.stdin.write(f"{line}\n".encode())
                guard.stdin.flush()


def _running_guard() -> subprocess.Popen[bytes]:
    global _guard  # noqa: PLW0603 - one for the process
    if _guard is None:
        _guard = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _GUARD],  # without site packages: it must start in any environment
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to our own group must not end the watchdog: decision 099
            env={name: value for name, value in os.environ.items() if name != WORKER_VARIABLE},  # outlives its worker
        )
        mark_process(_guard.pid, "")
        atexit.register(_close, _guard)
    return _guard


def _close(guard: subprocess.Popen[bytes]) -> None:
    """Close the pipe, so that the watchdog kills the remaining groups, and wait for its exit."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        if guard.stdin:
            guard.stdin.close()
        guard.wait(CLOSE_S)
