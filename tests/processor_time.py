"""The processor time of each test, that of its child processes included, for `--cpu-by-file=FILE`.

Seconds on the clock say little on a shared machine; other processes add little to the user and system time of a test.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
N_SHOWN = 25


class ProcessorTime:
    """Writes the CPU seconds of each test to a file of JSON lines, and shows the dearest test files."""

    def __init__(self, file: str, *, in_worker: bool) -> None:
        self._file = Path(file)
        if not in_worker:
            self._file.write_bytes(b"")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a test in the process that plays it; a worker adds its line to the file of all."""
        before = cpu_s()
        try:
            return (yield)
        finally:
            row = {"id": item.nodeid, "cpu_s": round(cpu_s() - before, 4)}
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(f"{json.dumps(row)}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the dearest files, and what no test has spent: start, collections, imports ahead."""
        by_file, n_tests = Counter[str](), Counter[str]()
        for row in map(json.loads, self._file.read_text("utf-8").splitlines()):
            by_file[row["id"].partition("::")[0]] += row["cpu_s"]
            n_tests[row["id"].partition("::")[0]] += 1
        terminalreporter.section("CPU seconds of test files and of their child processes")
        for file, seconds in by_file.most_common(N_SHOWN):
            terminalreporter.write_line(f"{seconds:8.1f} {n_tests[file]:5d} tests  {file}")
        terminalreporter.write_line(f"{by_file.total():8.1f} {n_tests.total():5d} tests  in all files")
        terminalreporter.write_line(
            f"{cpu_s():8.1f}              with the start, the collections and the imports ahead"
        )


def cpu_s() -> float:
    """CPU seconds of this process, of its children that have ended, and of its descendants that run."""
    own = os.times()
    ended = own.user + own.system + own.children_user + own.children_system
    return ended + sum(map(_cpu_s_of, _descendants(os.getpid())))


def _descendants(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _cpu_s_of(process: int) -> float:
    """Of a process that runs and of its children that have ended: fields 14 to 17 of proc_pid_stat(5)."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / TICKS_PER_S
