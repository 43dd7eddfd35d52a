"""The process that plays a run or a turn: its mark in the database, and whether it still lives."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import sys
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from evaldesk.model.stored import host_of
from evaldesk.settings import Settings
from evaldesk.store.database import Starter

MAX_DIGITS = 9
"""Of the id of a process."""
AT_BROWSER: ContextVar[list[str]] = ContextVar("at_browser")
"""The name of the person at the browser that asks, in a list of one that takes another; empty while none was typed."""


def current_owner() -> str:
    """This process, as the owner of a run or a turn: its id, its machine, and when and where there it started."""
    return f"{os.getpid()} {socket.gethostname()} {_start_tick(os.getpid())}@{_place()}"


def starter(settings: Settings) -> Starter:
    """The name or number of the process's user, and the machine."""
    return Starter(settings.me or user_name() or f"user {os.getuid()}", socket.gethostname())


def user_name() -> str:
    """The user of this process; empty for a number without a name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def is_owner_alive(owner: str) -> bool:
    """Whether the process `owner` still runs. Another machine's process counts as alive: we cannot see it."""
    host, pid, start_mark = host_of(owner), owner.partition(" ")[0], owner.rpartition(" ")[2]
    if not host:
        return False
    if host != socket.gethostname():
        return True
    if not (pid.isascii() and pid.isdecimal() and len(pid) <= MAX_DIGITS):  # written by another hand
        return False
    start_tick = start_mark.partition("@")[0]
    return _exists(int(pid)) and not _is_zombie(int(pid)) and _start_tick(int(pid)) in {start_tick, "-"}


def is_elsewhere(owner: str) -> bool:
    """Whether the process is on another machine, so that its life cannot be checked here."""
    return host_of(owner) not in ("", socket.gethostname())


def is_namesake(owner: str) -> bool:
    """Whether the process is of another machine, container or boot, though the machine's name is that of this one."""
    start_tick, at, place = owner.rpartition(" ")[2].partition("@")
    return not is_elsewhere(owner) and bool(start_tick and at) and place != _place()


def is_here(owner: str) -> bool:
    """Whether the process is, or was, one of this machine, this container and this boot."""
    return not (is_elsewhere(owner) or is_namesake(owner))


def is_at_work(owner: str, *, is_leased: bool | None) -> bool:
    """Whether the owner is at work: it lives here, or has renewed its lease elsewhere.

    A process of this machine that lives keeps its work however late it renews its lease, as after a sleep. Without a
    lease, which is of an older Evaldesk, a process elsewhere counts as alive.
    """
    return is_owner_alive(owner) if is_leased is None or is_here(owner) else is_leased


def _exists(pid: int) -> bool:
    if sys.platform == "win32":  # os.kill would end the process there
        return pid == os.getpid()
    try:
        # Signal 0 only asks whether the process exists (decision 114).
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_zombie(pid: int) -> bool:
    """Whether the process is over and its exit code was not collected, as often happens in containers."""
    return _stat(pid)[:1] == ["Z"]


def _start_tick(pid: int) -> str:
    """When the process started, in ticks since boot, so that a reused pid is not mistaken; `-` where unknown."""
    return (_stat(pid)[19:20] or ["-"])[0]


@cache
def _place() -> str:
    """Tells apart machines of one name: this boot of this machine, and the container; empty where nothing says."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        return hashlib.sha256(f"{boot}{os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, state first; none where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
