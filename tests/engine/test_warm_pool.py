"""Workers that wait for a run."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evaldesk.engine import LocalExecutor, WarmPool
from evaldesk.engine.host.process import Answer, Death
from evaldesk.model import AgentRef, Case, TrialSpec, Turn


async def _filled(warm_pool: WarmPool) -> None:
    warm_pool.fill("grader")
    assert warm_pool._filling is not None
    await asyncio.wait_for(warm_pool._filling, 60)


def _ignore(_: Answer | Death) -> None:
    """Nobody listens."""


@pytest.mark.anyio
async def test_a_run_is_played_by_the_worker_that_waited(tmp_path: Path) -> None:
    (tmp_path / "waiter.py").write_text("def root_agent(message, state):\n    return message\n")
    warm_pool = WarmPool(1)
    await _filled(warm_pool)
    waiting = warm_pool._idle[0].pid
    executor = LocalExecutor(1, 2, warm_pool=warm_pool)
    agent = AgentRef("waiter", "waiter:root_agent", str(tmp_path))

    for index in range(3):
        await executor.submit(TrialSpec(1, 0, index, Case("echo", (Turn("hello"),)), agent))
        result = await anext(executor.results())
        assert result.transcript.turns[0].answer == "hello"
    pids = executor.worker_pids
    await executor.close()
    await warm_pool.close()

    assert pids[0] == waiting  # the other is the grader


@pytest.mark.anyio
async def test_a_warm_worker_that_dies_is_not_handed_out() -> None:
    warm_pool = WarmPool(1)
    await _filled(warm_pool)
    worker = warm_pool._idle[0]

    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(worker._death, 10)

    assert warm_pool.take(_ignore, _ignore) is None
    await warm_pool.close()


@pytest.mark.anyio
async def test_nothing_is_started_unless_it_is_asked_for() -> None:
    warm_pool = WarmPool(2)

    warm_pool.refill()

    assert warm_pool.take(_ignore, _ignore) is None
    await warm_pool.close()


WHOLE = (
    "from nltk.metrics.association import fisher_exact; from rouge_score.rouge_scorer import RougeScorer; import numpy"
)


@pytest.mark.parametrize(
    "before", ["", "import nltk.stem, sys; del sys.modules['nltk']", WHOLE], ids=["", "part", "whole"]
)
def test_rouge_is_warm_without_its_heavy_parts_and_leaves_them_whole_to_others(before: str) -> None:
    code = f"""
import sys
{before}
from evaldesk.metrics.responses.rouge import preload, rouge1, score_rouge2, score_rouge_l
preload()
assert {before!r} or not {{"nltk", "scipy", "rouge_score"}} & set(sys.modules)
texts = ("rolling two dice", "he rolled two dice")
print(rouge1(*texts), score_rouge2(*texts).fmeasure, score_rouge_l(*texts).fmeasure)
{WHOLE}
RougeScorer(["rougeLsum"]).score_multi(["a die"], "a die")["rougeLsum"]
assert fisher_exact and numpy.argmax([1, 2]) == 1
"""

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)

    assert printed.stdout == "0.8571428571428571 0.8 0.8571428571428571\n"
