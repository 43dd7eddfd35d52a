"""The two commands of the README as a newcomer gives them, in a bare clone: `make run`, then `make test`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.row import Row, rounded

READY = "make run in a bare clone, until the desk is ready"
TESTS = "make test in a bare clone"
ROOT = Path(__file__).parents[1]


def measure(folder: Path) -> Iterator[Row]:
    """Seconds of the first `make run`, its setup included, then minutes of `make test`."""
    newcomer = [str(ROOT / ".ci" / "newcomer"), str(folder)]
    subprocess.run([*newcomer, "true"], check=True)  # the clone, which is no part of either command
    started = time.perf_counter()
    desk = subprocess.Popen(
        [*newcomer, "make", "run", "ARGS=--no-open --port 0"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert desk.stdout
        if not any("Evaldesk ready at" in line for line in desk.stdout):
            raise RuntimeError("make run ended before the desk was ready")
        yield Row(READY, rounded(time.perf_counter() - started), "s", 60)
    finally:
        os.killpg(desk.pid, signal.SIGINT)
        desk.wait()
    started = time.perf_counter()
    subprocess.run([*newcomer, "make", "test"], check=True, stdout=subprocess.DEVNULL)
    yield Row(TESTS, rounded((time.perf_counter() - started) / 60), "min", 5)
