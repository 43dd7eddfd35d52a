"""The process that plays a run or a turn: its mark in the database, and whether it still lives."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def current_owner() -> str:
    """This process, as the owner of a run or a turn."""
    return f"{os.getpid()} {socket.gethostname()} {_started(os.getpid())}"


def is_owner_alive(owner: str) -> bool:
    """Whether the process `owner` still runs. Another machine's process counts as alive: we cannot see it."""
    pid, _, rest = owner.partition(" ")
    host, _, started = rest.rpartition(" ")
    if not pid.isdecimal() or not host:
        return False
    if host != socket.gethostname():
        return True
    return _exists(int(pid)) and not _is_zombie(int(pid)) and _started(int(pid)) in {started, "-"}


def host_of(owner: str) -> str:
    """The machine of the process; empty for a text that names no process."""
    return owner.partition(" ")[2].rpartition(" ")[0]


def is_elsewhere(owner: str) -> bool:
    """Whether the process is on another machine, so that its life cannot be checked here."""
    return host_of(owner) not in ("", socket.gethostname())


def _exists(pid: int) -> bool:
    if sys.platform == "win32":  # os.kill would end the process there
        return pid == os.getpid()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_zombie(pid: int) -> bool:
    """Whether the process is over and its exit code was not collected, as often happens in containers."""
    return _stat(pid)[:1] == ["Z"]


def _started(pid: int) -> str:
    """When the process started, in ticks since boot, so that a reused pid is not mistaken; `-` where unknown."""
    return (_stat(pid)[19:20] or ["-"])[0]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, state first; none where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
