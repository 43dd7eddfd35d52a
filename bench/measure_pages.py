"""How long pages take and how large they are: the server alone, asked over one connection on loopback."""

from __future__ import annotations

import http.client
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.row import Row, rounded
from bench.seed import seed

TOKEN = "a-token-for-the-bench"
N_ASKED = 30
SIZES = ((0, ""), (1_000_000, " beside 1,000,000 trials"))


@dataclass(frozen=True)
class Seen:
    """Median milliseconds until the last byte, and kB."""

    ms: float
    kb: float


def measure(folder: Path) -> list[Row]:
    """The run page, the runs list and the trial page, alone and beside a million trials."""
    rows: list[Row] = []
    for n_others, words in SIZES:
        workspace = folder / f"beside-{n_others}"
        (workspace / ".evaldesk").mkdir(parents=True)
        run_id = seed(workspace / ".evaldesk" / "evaldesk.db", 1000, 5, n_others)
        os.sync()  # what was just written is not what is measured
        rows += _measure_at(workspace, run_id, words)
    return rows


def _measure_at(workspace: Path, run_id: int, words: str) -> list[Row]:
    pages = (
        ("run page, 1,000 x 5", f"/runs/{run_id}", 25, 80),
        ("runs list", "/runs", 25, 60),
        ("trial page", f"/runs/{run_id}/cases/3/trials/2", None, None),
        ("home", "/", None, None),
    )
    rows = []
    with served(workspace) as connection:
        for what, path, budget_ms, budget_kb in pages:
            seen = ask(connection, path)
            rows.append(Row(f"{what}{words}", rounded(seen.ms), "ms", budget_ms))
            rows.append(Row(f"{what}{words}, size", rounded(seen.kb), "kB", budget_kb))
    return rows


@contextmanager
def served(workspace: Path) -> Iterator[http.client.HTTPConnection]:
    command = [sys.executable, "-m", "evaldesk", "ui", "--demo", "--no-open", "--port", "0", "--token", TOKEN]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=workspace)
    assert process.stdout is not None
    port = re.search(r":(\d+)/", process.stdout.readline())
    assert port is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(port[1]))
    try:
        time.sleep(3)  # the agents are being described; what is measured is a desk at rest
        yield connection
    finally:
        connection.close()
        process.terminate()
        process.wait(30)
        process.stdout.close()


def ask(connection: http.client.HTTPConnection, path: str) -> Seen:
    took, size = [], 0
    for _ in range(N_ASKED):
        started = time.perf_counter()
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        size = len(answer.read())
        took.append(1000 * (time.perf_counter() - started))
        assert answer.status == 200, f"{path}: {answer.status}"
    return Seen(statistics.median(took), size / 1000)
