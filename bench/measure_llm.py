"""What a model call costs by each client, and how well trials share the time that a model takes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.fake_model import fake_model
from bench.row import Row, rounded
from evaldesk.engine import LocalExecutor, drive
from evaldesk.llm import ModelCall, client, complete, direct
from evaldesk.llm.loop import on_loop
from evaldesk.model import AgentRef, Case, Limits, TrialSpec, Turn

AGENTS = """
from evaldesk import LlmAgent

def look_up(what: str) -> str:
    \"\"\"Look something up.\"\"\"
    return f"{{what}} is here"

one_call = LlmAgent(name="small", model="small", api_base="{0}")
four_calls = LlmAgent(name="small", model="small", api_base="{0}", tools=[look_up])
"""
MESSAGES = [{"role": "user", "content": "hi"}]
N_CALLS, AT_ONCE = 400, 10
LATENCY_MS = 200
CONCURRENCIES = (10, 100, 500)
N_ROUNDS = 10
BUDGET, BUDGET_AT = 0.9, 100


@dataclass(frozen=True)
class _Kind:
    """A kind of trial: so many turns, and model calls in all of them."""

    agent: str
    words: str
    n_turns: int
    n_calls: int


SHORT = _Kind("one_call", "1 model call", n_turns=1, n_calls=1)
USUAL = _Kind("four_calls", "2 turns, 2 tool calls, 4 model calls", n_turns=2, n_calls=4)


def efficiency(kind: _Kind, concurrency: int) -> str:
    """The name of a row."""
    return f"{LATENCY_MS} ms model, {concurrency} trials at once of {kind.words}: efficiency"


def measure(folder: Path) -> list[Row]:
    """Efficiency, which is ideal time on the clock by the measured one, and processor time of a call.

    Calls come last: this process drives the trials, and no driver has LiteLLM, whose objects it would collect.
    """
    with fake_model(LATENCY_MS) as address:
        (folder / "asking.py").write_text(AGENTS.format(address))
        rows = [asyncio.run(_efficiency(folder, SHORT, concurrency)) for concurrency in CONCURRENCIES]
        rows += [asyncio.run(_efficiency(folder, USUAL, BUDGET_AT))]
    with fake_model(0) as address:
        call = ModelCall("small", MESSAGES, api_base=address)
        rows += [
            Row("model call straight to its endpoint: processor", asyncio.run(_direct(call)), "ms/call"),
            Row("the same through LiteLLM: processor", asyncio.run(_cpu_ms(lambda: _litellm(call))), "ms/call"),
            Row("the same through bare httpx: processor", asyncio.run(_httpx(address)), "ms/call"),
        ]
    return rows


async def _direct(call: ModelCall) -> float:
    """As trials make it: on the loop of their thread."""
    direct.use_loop(asyncio.get_running_loop())
    try:
        return await _cpu_ms(lambda: complete(call))
    finally:
        await direct.close()


async def _litellm(call: ModelCall) -> None:
    await on_loop(client.ask(call, None, frozenset()))


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


async def _efficiency(folder: Path, kind: _Kind, concurrency: int) -> Row:
    """Of N_ROUNDS x `concurrency` trials, once the workers are up; the first of them all begin at one moment, which
    costs a tenth of a second at 100 that no later trial pays: 10 rounds are DESIGN's run of 1,000 trials.
    """
    ref = AgentRef(kind.agent, f"asking:{kind.agent}", root=str(folder))
    limits = Limits(trial_timeout_s=300)
    turns = (Turn("hi"),) * kind.n_turns

    def specs(n: int) -> list[TrialSpec]:
        return [TrialSpec(1, i, 0, Case(f"c{i}", turns), ref, (), limits) for i in range(n)]

    executor = LocalExecutor(os.cpu_count() or 2, concurrency)
    try:
        async for _ in drive(specs(concurrency), executor, concurrency):  # workers start
            pass
        started = time.perf_counter()
        results = [result async for result in drive(specs(N_ROUNDS * concurrency), executor, concurrency)]
        wall_s = time.perf_counter() - started
    finally:
        await executor.close()
    assert all(result.status == "finished" and len(result.usages) == kind.n_calls for result in results)
    ideal_s = N_ROUNDS * kind.n_calls * LATENCY_MS / 1000
    budget = BUDGET if concurrency == BUDGET_AT else None
    return Row(efficiency(kind, concurrency), rounded(ideal_s / wall_s), "", budget)
