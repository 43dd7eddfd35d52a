"""How long one waits before anything answers."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench.row import Row, rounded

EVALDESK = (sys.executable, "-m", "evaldesk")
SERVE = (*EVALDESK, "ui", "--demo", "--no-open", "--port", "0")
N = 5
VERSION, READY = "evaldesk --version", "server ready"


def measure(folder: Path) -> list[Row]:
    """The command line; the server until it says where it is, and until its first page, asked for at that moment, came.

    The database is made first, then there already.
    """
    rows = [
        Row(VERSION, rounded(_median_of_runs("--version")), "s", 0.25),
        Row("evaldesk --help", rounded(_median_of_runs("--help")), "s", 0.25),
        Row("server ready, new workspace", rounded(_start(folder)[0]), "s"),
    ]
    ready, page = zip(*(_start(folder) for _ in range(N)), strict=True)
    return [
        *rows,
        Row(READY, rounded(statistics.median(ready)), "s", 0.8),
        Row("first page, from the start", rounded(statistics.median(page)), "s"),
    ]


def _median_of_runs(option: str) -> float:
    return statistics.median(_run((*EVALDESK, option)) for _ in range(N))


def _run(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _start(folder: Path) -> tuple[float, float]:
    """Seconds from the start of a server until it said where it is, and until it answered."""
    started = time.perf_counter()
    process = subprocess.Popen((*SERVE, "--workspace", str(folder)), stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None
    address = urlsplit(process.stdout.readline().split()[-1])
    ready_s = time.perf_counter() - started
    _ask(address.netloc, parse_qs(address.query)["token"][0])
    page_s = time.perf_counter() - started
    process.terminate()
    process.wait(30)
    process.stdout.close()
    return ready_s, page_s


def _ask(host: str, token: str) -> None:
    connection = HTTPConnection(host)
    connection.request("GET", "/", headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    assert response.status == 200, response.status
    response.read()
    connection.close()
