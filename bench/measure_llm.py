"""What a model call costs beside bare httpx, and how well trials share the time that a model takes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from bench.fake_model import fake_model
from bench.row import Row, rounded
from evaldesk.agents import agent_ref
from evaldesk.engine import LocalExecutor, drive
from evaldesk.llm import ModelCall, complete
from evaldesk.llm.client import open_litellm
from evaldesk.model import Case, Limits, TrialSpec, Turn

AGENT = (
    'from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name="small", model="hosted_vllm/small", api_base="{}")\n'
)
MESSAGES = [{"role": "user", "content": "hi"}]
N_CALLS, AT_ONCE = 400, 10
LATENCY_MS = 200
CONCURRENCIES = (10, 100, 500)
N_ROUNDS = 4


def measure(folder: Path) -> list[Row]:
    """Processor time of a call, then efficiency: ideal time on the clock by the measured one."""
    with fake_model(0) as address:
        rows = [
            Row("model call through LiteLLM, 10 at once: processor", asyncio.run(_litellm(address)), "ms/call"),
            Row("the same through bare httpx: processor", asyncio.run(_httpx(address)), "ms/call"),
        ]
    with fake_model(LATENCY_MS) as address:
        agent = folder / "small"
        agent.mkdir()
        (agent / "agent.py").write_text(AGENT.format(address))
        rows += [asyncio.run(_efficiency(agent, concurrency)) for concurrency in CONCURRENCIES]
    return rows


async def _litellm(address: str) -> float:
    open_litellm()
    call = ModelCall("hosted_vllm/small", MESSAGES, api_base=address)
    return await _cpu_ms(lambda: complete(call))


async def _httpx(address: str) -> float:
    async with httpx.AsyncClient(timeout=30) as client:
        body = {"model": "small", "messages": MESSAGES}
        return await _cpu_ms(lambda: client.post(f"{address}/chat/completions", json=body))


async def _cpu_ms(call: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of this process for one call, AT_ONCE of them at a time, once it is warm."""
    numbers = iter(range(N_CALLS))

    async def work() -> None:
        for _ in numbers:
            await call()

    await asyncio.gather(*(call() for _ in range(AT_ONCE)))
    before = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return rounded(1000 * (time.process_time() - before) / N_CALLS)


async def _efficiency(agent: Path, concurrency: int) -> Row:
    ref = agent_ref(str(agent))
    limits = Limits(trial_timeout_s=300)

    def specs(n: int) -> list[TrialSpec]:
        return [TrialSpec(1, i, 0, Case(f"c{i}", (Turn("hi"),)), ref, (), limits) for i in range(n)]

    executor = LocalExecutor(os.cpu_count() or 2, concurrency)
    try:
        async for _ in drive(specs(concurrency), executor, concurrency):  # workers start, and import LiteLLM
            pass
        started = time.perf_counter()
        results = drive(specs(N_ROUNDS * concurrency), executor, concurrency)
        n_finished = sum([result.status == "finished" async for result in results])
        wall_s = time.perf_counter() - started
    finally:
        await executor.close()
    assert n_finished == N_ROUNDS * concurrency
    ideal_s = N_ROUNDS * LATENCY_MS / 1000
    budget = 0.9 if concurrency == 100 else None
    return Row(
        f"{LATENCY_MS} ms model, {concurrency} trials at once: efficiency", rounded(ideal_s / wall_s), "", budget
    )
