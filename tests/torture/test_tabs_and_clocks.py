"""A desk with very many open tabs, some of which read nothing, and a machine whose clock jumps."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder

pytestmark = pytest.mark.torture

log = logging.getLogger("torture")

N_TABS = int(os.environ.get("EVALDESK_TORTURE_TABS", "200"))
N_SLOW = N_TABS // 10
"""Tabs that read nothing, as on a machine that sleeps."""
MOST_MIB_MORE = 300
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

JUMPING = """
import datetime, itertools, random, time
from evaldesk.store import Store, database

jumps, real, now = itertools.cycle([0, 86400, -86400, 31536000, -3600, 7]), time.time, database.utc_now
offset = 0


def jumped():
    global offset
    if random.random() < 0.02:
        offset = next(jumps)
    return offset


time.time = lambda: real() + jumped()
Store.open.__func__.__kwdefaults__["clock"] = lambda: now() + datetime.timedelta(seconds=jumped())
from evaldesk.cli import main
main()
"""


def test_two_hundred_tabs_and_slow_readers_slow_no_run_and_fill_no_memory(brief: ServedFolder) -> None:
    brief.write_cases([f"case {i}" for i in range(300)])
    server = brief.start(SLOWNESS_S="0.2")
    server.get("/runs/new")
    before_mib, before_s = memory_mib(server.process.pid), cpu_s(server.process.pid)
    run_id = server.start_run(n="2", concurrency="8")
    ends: list[str] = []

    with ExitStack() as stack:
        for _ in range(N_SLOW):
            stack.enter_context(closing(silent_tab(server.url, run_id)))
        tabs = [Thread(target=watch, args=(server, run_id, ends)) for _ in range(N_TABS - N_SLOW)]
        for tab in tabs:
            tab.start()
        waits = []
        while "http-equiv" in (page := server.get(f"/runs/{run_id}")).text:
            waits.append(page.elapsed.total_seconds())
        for tab in tabs:
            tab.join(60)
        more_mib = memory_mib(server.process.pid) - before_mib
        used_s = cpu_s(server.process.pid) - before_s
        asked = time.monotonic()
        n_alive = server.get("/").status_code
        home_s = time.monotonic() - asked

    log.info(
        "%s tabs, %s of them silent: %.1f CPU-s of the server, %.0f MiB more, slowest page %.2f s, home page %.2f s",
        *(N_TABS, N_SLOW, used_s, more_mib, max(waits, default=0.0), home_s),
    )
    assert n_alive == 200
    assert "All 600 trials done" in page.text
    assert ends == ["done"] * (N_TABS - N_SLOW)
    assert more_mib < MOST_MIB_MORE
    assert server.end() == 0  # tabs that read nothing keep no desk open


def silent_tab(url: str, run_id: int) -> socket.socket:
    """A tab that asks for the stream of a run and reads nothing of it, into a small buffer."""
    from tests.torture.conftest import TOKEN

    address = httpx2.URL(url)
    tab = socket.socket()
    tab.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tab.connect((address.host, address.port))
    lines = (f"GET /runs/{run_id}/events HTTP/1.1", f"Host: {address.host}:{address.port}")
    tab.sendall("\r\n".join((*lines, f"Authorization: Bearer {TOKEN}", "", "")).encode())
    return tab


def watch(server: Any, run_id: int, ends: list[str]) -> None:
    """A tab that reads the stream of a run to its end."""
    with server.stream(f"/runs/{run_id}/events") as answer:
        for line in answer.iter_lines():
            if line == "event: done":
                ends.append("done")
                return


def memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def test_a_clock_that_jumps_by_days_loses_doubles_and_mistimes_nothing(brief: ServedFolder) -> None:
    brief.write_cases([f"case {i}" for i in range(100)])
    began = time.monotonic()
    server = brief.start(program=("-c", JUMPING), EVALDESK_TRUST="1")
    run_id = server.start_run(n="2", concurrency="8")
    page = server.say_when_done(run_id)
    took_ms = (time.monotonic() - began) * 1000
    end = server.end()

    assert "All 200 trials done" in page
    assert (end, len(brief.played)) == (0, 200)
    with closing(sqlite3.connect(brief.database)) as connection:
        run = connection.execute("SELECT status, n_duplicates, n_played_again, active_ms FROM run").fetchone()
        times = connection.execute("SELECT min(duration_ms), max(duration_ms) FROM trial").fetchone()
    log.info(
        "a clock that jumps: %.1f s of %.1f s active, trials of %.0f to %.0f ms", run[3] / 1e3, took_ms / 1e3, *times
    )
    assert run[:3] == ("finished", 0, 0)
    assert 0 < run[3] < took_ms
    assert 0 <= times[0] <= times[1] < took_ms
