"""Long runs with kills and cancellations at random moments; only by `make torture`. (reliability_stats.md B3)"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from evaldesk.engine import LocalExecutor, drive
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = [pytest.mark.anyio, pytest.mark.torture]

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]

BRIEF = """
    import asyncio, random

    async def agent(message):
        await asyncio.sleep(random.random() * 0.01)
        return message
"""


@pytest.mark.parametrize("seed", range(20))
async def test_no_kill_loses_or_doubles_one_of_a_thousand_trials(write_agent: Write, trial: Trial, seed: int) -> None:
    chance = random.Random(seed)
    agent = write_agent(BRIEF)
    executor = LocalExecutor(n_workers=chance.choice((1, 2, 4)), concurrency=chance.choice((1, 4, 16)))
    found: list[TrialResult] = []
    n_kills = 0

    async with asyncio.timeout(300):
        async for result in drive([trial(agent, i) for i in range(1_000)], executor, 16):
            found.append(result)
            if executor.worker_pids and chance.random() < 0.01:
                with suppress(ProcessLookupError):  # it is gone, and its executor does not know yet
                    os.kill(chance.choice(executor.worker_pids), signal.SIGKILL)
                    n_kills += 1
        await executor.close()

    assert sorted(result.case_index for result in found) == list(range(1_000))
    assert sum(result.status != "finished" for result in found) <= n_kills
    assert sum(result.attempt - 1 for result in found) <= n_kills * 16


@pytest.mark.parametrize("seed", range(40))
async def test_a_cancellation_at_any_moment_ends_everything(write_agent: Write, trial: Trial, seed: int) -> None:
    chance = random.Random(seed)
    agent = write_agent(BRIEF)
    executor = LocalExecutor(n_workers=2, concurrency=8)
    found: list[TrialResult] = []

    async def collect() -> None:
        async for result in drive([trial(agent, i) for i in range(1_000)], executor, 8):
            found.append(result)

    async with asyncio.timeout(300):
        collecting = asyncio.create_task(collect())
        await asyncio.wait((collecting,), timeout=chance.random() * 1.5)
        async with asyncio.timeout(300):
            await executor.cancel()
        await collecting
        await executor.close()

    indices = [result.case_index for result in found]
    assert len(set(indices)) == len(indices)
    assert {result.status for result in found} <= {"finished", "cancelled"}
    assert sum(result.status == "cancelled" for result in found) <= 9
