"""How long the tests take."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.row import Row, rounded

SUITE = "make test"


def measure(_: Path) -> Iterator[Row]:
    """Minutes of `make test` on this machine."""
    started = time.perf_counter()
    subprocess.run(
        [shutil.which("make") or "make", "test"], cwd=Path(__file__).parents[1], check=True, stdout=subprocess.DEVNULL
    )
    yield Row(SUITE, rounded((time.perf_counter() - started) / 60), "min", 5)
