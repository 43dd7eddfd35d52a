"""A desk at work: other pages beside many tabs on a run that is played, and beside agents that block."""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from bench.measure_pages import TOKEN, Served, large_set, served
from bench.processor import cpu_s_below
from bench.row import Row, rounded

WAITING = """
import asyncio

async def root_agent(message):
    await asyncio.sleep(0.05)
    return "Hello, how can I help?"
"""
BLOCKING = """
def root_agent(message):
    return str(sum(range(10_000_000)))
"""
N_TABS, N_CASES, N_ASKED = 200, 100_000, 100
TABS = f"{N_TABS} tabs on a run that is played: run page, 99th percentile"
BLOCKED = "4 agents that block: run page, 99th percentile"


def measure(folder: Path) -> Iterator[Row]:
    """The 99th percentile of a page, and what a tab is sent at each tick."""
    with _running(folder / "tabs", WAITING, concurrency=8) as (desk, run):
        before, began = cpu_s_below(desk.pid), time.perf_counter()
        with _Tabs(desk.port or 0, run) as tabs:
            took = _asked(desk, run)
        spent_s, wall_s = cpu_s_below(desk.pid) - before, time.perf_counter() - began
        yield Row(TABS, rounded(_p99(took)), "ms", 300, rounded(spent_s))
        yield Row(f"{N_TABS} tabs: run page, median", rounded(statistics.median(took)), "ms", None, rounded(spent_s))
        yield Row(f"{N_TABS} tabs: processor of the desk and its workers", rounded(spent_s / wall_s), "s/s")
        yield Row("a tab on a run that is played, each message", rounded(tabs.kb_of_message), "kB")
        yield Row("the same on the wire", rounded(tabs.kb_sent), "kB")
    with _running(folder / "blocked", BLOCKING, concurrency=4) as (desk, run):
        before = cpu_s_below(desk.pid)
        took = _asked(desk, run)
        spent_s = cpu_s_below(desk.pid) - before
        yield Row(BLOCKED, rounded(_p99(took)), "ms", None, rounded(spent_s))
        yield Row(
            "4 agents that block: run page, median", rounded(statistics.median(took)), "ms", None, rounded(spent_s)
        )


@contextmanager
def _running(workspace: Path, agent: str, *, concurrency: int) -> Iterator[tuple[Served, int]]:
    """A desk that plays a run which outlasts the measure, and the id of the run."""
    workspace.mkdir()
    (workspace / "agent").mkdir()
    (workspace / "agent" / "agent.py").write_text(agent)
    (workspace / "large.evalset.json").write_text(json.dumps(large_set(N_CASES // 10)))
    with served(workspace, ".") as desk:
        form = _ask(desk, "GET", "/runs/new")
        chosen = {name: _first(form, name) for name in ("agent", "evalset")}
        fields = {**chosen, "metric": "response_match_score", "n": "10", "concurrency": str(concurrency)}
        location = _ask(desk, "POST", "/runs", urlencode({**fields, "timeout_s": "60"}))
        yield desk, int(location.rpartition("/")[2])


def _first(page: str, name: str) -> str:
    found = re.search(rf'<select[^>]* name="{name}".*?<option value="([^"]+)"', page, re.DOTALL)
    assert found, f"the form has no {name}"
    return found[1]


def _ask(desk: Served, method: str, path: str, body: str = "") -> str:
    """The page, or where it leads."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "same-origin"}
    if body:
        headers |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{desk.host}:{desk.port}"}
    desk.request(method, path, body, headers)
    answer = desk.getresponse()
    text = answer.read().decode()
    assert answer.status in (200, 303), f"{path}: {answer.status} {text[:2000]}"
    return answer.headers.get("location") or text


def _asked(desk: Served, run: int) -> list[float]:
    """Milliseconds of each asking, one after the other as a person who looks around."""
    took = []
    for _ in range(N_ASKED):
        began = time.perf_counter()
        _ask(desk, "GET", f"/runs/{run}")
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(0.05)
    return took


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


@dataclass
class _Tabs:
    """Tabs that watch a run, from a thread of this process; the first reads what it is sent."""

    port: int
    run: int
    n_messages: int = 0
    n_bytes: int = 0
    n_sent: int = 0

    def __enter__(self) -> _Tabs:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tabs = [
            asyncio.run_coroutine_threadsafe(self._watch(number == 0), self._loop) for number in range(N_TABS)
        ]
        time.sleep(2)
        return self

    def __exit__(self, *_: object) -> None:
        for tab in self._tabs:
            tab.cancel()
        time.sleep(0.5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _watch(self, is_read: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"GET /runs/{self.run}/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAccept-Encoding: gzip\r\n"
        writer.write(f"{head}Authorization: Bearer {TOKEN}\r\nSec-Fetch-Site: same-origin\r\n\r\n".encode())
        assert b" 200 " in (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]
        unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS)
        while size := int(await reader.readline(), 16):
            piece = (await reader.readexactly(size + 2))[:-2]
            if is_read:
                text = unpacked.decompress(piece)
                self.n_messages += text.count(b"\n\n")
                self.n_bytes, self.n_sent = self.n_bytes + len(text), self.n_sent + size

    @property
    def kb_of_message(self) -> float:
        """kB of a message in the mean, the first whole one included."""
        return self.n_bytes / max(1, self.n_messages) / 1000

    @property
    def kb_sent(self) -> float:
        """kB of a message in the mean as it was sent."""
        return self.n_sent / max(1, self.n_messages) / 1000
