"""How long one waits before anything answers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.row import Row, rounded

EVALDESK = (sys.executable, "-m", "evaldesk")
SERVE = (*EVALDESK, "ui", "--demo", "--no-open", "--port", "0")


def measure(folder: Path) -> list[Row]:
    """The command line, and the server until it says where it is (database made, then there already)."""
    rows = [
        Row("evaldesk --version", rounded(_median(lambda: _run((*EVALDESK, "--version")))), "s", 0.25),
        Row("evaldesk --help", rounded(_median(lambda: _run((*EVALDESK, "--help")))), "s", 0.25),
        Row("server ready, new workspace", rounded(_until_ready(folder)), "s"),
    ]
    again = _median(lambda: _until_ready(folder))
    return [*rows, Row("server ready", rounded(again), "s", 0.8)]


def _median(take: object, n: int = 5) -> float:
    assert callable(take)
    return statistics.median(float(take()) for _ in range(n))


def _run(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _until_ready(folder: Path) -> float:
    started = time.perf_counter()
    process = subprocess.Popen((*SERVE, "--workspace", str(folder)), stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None
    process.stdout.readline()
    took = time.perf_counter() - started
    process.terminate()
    process.wait(30)
    process.stdout.close()
    return took
