"""Workers that wait for a run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from evaldesk.engine import LocalExecutor, SpareWorkers
from evaldesk.engine.process import Answer, Death
from evaldesk.model import AgentRef, Case, TrialSpec, Turn


async def _filled(spares: SpareWorkers) -> None:
    spares.fill("trials")
    assert spares._filling is not None
    await asyncio.wait_for(spares._filling, 60)


def _ignore(_: Answer | Death) -> None:
    """Nobody listens."""


@pytest.mark.anyio
async def test_a_run_is_played_by_the_worker_that_waited(tmp_path: Path) -> None:
    (tmp_path / "waiter.py").write_text("def root_agent(message, state):\n    return message\n")
    spares = SpareWorkers(1)
    await _filled(spares)
    waiting = spares._idle[0].pid
    executor = LocalExecutor(1, 2, spares=spares)
    agent = AgentRef("waiter", "waiter:root_agent", str(tmp_path))

    for index in range(3):
        await executor.submit(TrialSpec(1, 0, index, Case("echo", (Turn("hello"),)), agent))
        result = await anext(executor.results())
        assert result.transcript.turns[0].answer == "hello"
    pids = executor.worker_pids
    await executor.close()
    await spares.close()

    assert pids == [waiting]


@pytest.mark.anyio
async def test_a_spare_that_dies_is_not_handed_out() -> None:
    spares = SpareWorkers(1)
    await _filled(spares)
    worker = spares._idle[0]

    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(worker._gone, 10)

    assert spares.take(_ignore, _ignore) is None
    await spares.close()


@pytest.mark.anyio
async def test_nothing_is_started_unless_it_is_asked_for() -> None:
    spares = SpareWorkers(2)

    spares.refill()

    assert spares.take(_ignore, _ignore) is None
    await spares.close()


def test_rouge_is_warm_without_scipy_and_leaves_nltk_whole_to_others() -> None:
    import subprocess

    code = (
        "import sys; from evaldesk.metrics import preload, rouge1; preload();"
        "assert 'scipy' not in sys.modules;"
        "assert rouge1('rolling dice', 'rolled a die') > 0;"
        "from nltk.metrics.association import fisher_exact; assert fisher_exact"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
