"""How long the tests take: only where EVALDESK_BENCH_SUITE is 1, since they take longer than all other measures."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.row import Row, rounded

SUITE = "make test"


def measure(_: Path) -> Iterator[Row]:
    """Minutes of `make test` on this machine."""
    if os.environ.get("EVALDESK_BENCH_SUITE") != "1":
        return
    started = time.perf_counter()
    subprocess.run(
        [shutil.which("make") or "make", "test"], cwd=Path(__file__).parents[1], check=True, stdout=subprocess.DEVNULL
    )
    yield Row(SUITE, rounded((time.perf_counter() - started) / 60), "min", 5)
