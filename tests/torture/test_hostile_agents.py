"""Hostile agents beside healthy ones, through the whole server, while its pages are asked for."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder

    from evaldesk.model import TrialResult

pytestmark = pytest.mark.server

log = logging.getLogger("torture")

HOSTILE_AGENT = """
import asyncio
import os
import sys
import time

from evaldesk.model import Event, ToolCall


async def root_agent(message, state):
    kind = message.split()[0]
    call = ToolCall("look_up", {"what": message})
    yield Event("tool_call", call=call)
    if kind == "block":
        time.sleep(60)
    if kind == "exit":
        os._exit(3)
    if kind == "garbage":
        for number in (1, 2):
            os.write(number, bytes(range(256)) * 4096)
        sys.stdout.buffer.write(b"\\xff\\xfe\\x00{")
    if kind == "nonsense":
        yield {"neither": {"text", "nor", "event"}}
    if kind == "silent":
        await asyncio.Event().wait()
    if kind == "deaf":
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    if kind == "huge":
        state["much"] = "x" * 50_000_000
        yield Event("tool_result", call=call, result=["y" * 100] * 1_000_000)
    if kind == "fork" and os.fork() == 0:
        time.sleep(600)
    if kind == "deep":
        value = []
        for _ in range(100_000):
            value = [value]
        yield Event("tool_result", call=call, result=value)
    yield Event("tool_result", call=call, result="found")
    yield "It is " + message
"""

LIMIT_S = 20  # the largest answers take a second or two where nobody else is at work
# What is sent, the status and verdict of its trial, and what is said of it.
HOSTILE = [
    ("block", "timed_out", "errored", f"{LIMIT_S} s"),
    ("exit", "errored", "errored", "exit code 3"),
    ("garbage", "finished", "passed", ""),
    ("nonsense", "errored", "errored", "returned dict"),
    ("silent", "timed_out", "errored", f"{LIMIT_S} s"),
    ("deaf", "timed_out", "errored", f"{LIMIT_S} s"),
    ("huge", "finished", "passed", ""),
    ("fork", "finished", "passed", ""),
    ("deep", "finished", "passed", ""),
]
N_HEALTHY = 60


def test_hostile_agents_hurt_neither_the_pages_nor_another_trial(
    place: ServedFolder, wait_until: Callable[..., None]
) -> None:
    place.write_agent(HOSTILE_AGENT)
    queries = [f"healthy {i}" for i in range(N_HEALTHY)]
    for index, (kind, *_) in enumerate(HOSTILE):
        queries.insert(3 + index * 6, kind)
    place.write_cases(queries)
    server = place.start()

    run_id = server.start_run(timeout_s=str(LIMIT_S))
    times_ms = []
    while "running" in (page := server.get(f"/runs/{run_id}")).text.partition("</h1>")[0]:
        for path in (f"/runs/{run_id}", "/runs", "/", f"/runs/{run_id}/cases/0/trials/0"):
            began = time.perf_counter()
            assert server.get(path).status_code == 200
            times_ms.append((time.perf_counter() - began) * 1000)
        time.sleep(0.5)  # as a visitor would, who leaves the workers their share
    hundredths = statistics.quantiles(times_ms, n=100)
    log.info("%d pages, p50 %.0f ms, p99 %.0f ms", len(times_ms), hundredths[49], hundredths[98])

    assert page.status_code == 200
    trials = results(place, run_id, queries)
    said = {kind: (trials[kind].status, trials[kind].verdict) for kind, *_ in HOSTILE}
    assert said == {kind: (status, verdict) for kind, status, verdict, _ in HOSTILE}
    for kind, _, _, words in HOSTILE:
        error = trials[kind].error
        assert words in (error.message if error else "")
        assert server.get(f"/runs/{run_id}/cases/{queries.index(kind)}/trials/0").status_code == 200
    healthy = [trial for query, trial in trials.items() if query.startswith("healthy")]
    assert {trial.verdict for trial in healthy} == {"passed"}
    assert server.end() == 0
    assert server.log() == ""
    place.until_alone()


def results(place: ServedFolder, run_id: int, queries: list[str]) -> dict[str, TrialResult]:
    with Store.open(place.database, must_exist=True) as store:
        return {query: store.runs.trial(run_id, index, 0) for index, query in enumerate(queries)}
