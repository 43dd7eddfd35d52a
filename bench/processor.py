"""Processor time of processes, of those that ended as well as of those that run."""

from __future__ import annotations

import os
from pathlib import Path

from evaldesk.process_setup import descendants

TICKS_S = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """Seconds of this process, of those below it but for endpoints of the bench, and of all that ended."""
    mine = os.times()
    below = [pid for pid in descendants(os.getpid()) if b"bench.fake_model" not in read(pid, "cmdline")]
    return mine.user + mine.system + mine.children_user + mine.children_system + sum(map(cpu_s_of, below))


def cpu_s_of(pid: int) -> float:
    """Seconds of a process and of its children that it waited for; 0 of one that is gone."""
    found = read(pid, "stat").rpartition(b")")[2].split()
    return sum(map(int, found[11:15])) / TICKS_S


def cpu_s_below(pid: int) -> float:
    """Seconds of a process and of all that run below it."""
    return sum(map(cpu_s_of, (pid, *descendants(pid))))


def peak_mib_of(pid: int) -> float:
    """The largest memory that a process had so far, in MiB."""
    lines = read(pid, "status").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(b"VmHWM")), 0.0)


def pss_mib_of(pid: int) -> float:
    """The memory of a process in MiB, of pages that it shares its share; 0 where Linux does not say."""
    lines = read(pid, "smaps_rollup").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(b"Pss:")), 0.0)


def read(pid: int, name: str) -> bytes:
    """A file of the process, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
