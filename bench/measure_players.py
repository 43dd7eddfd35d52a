"""What Evaldesk adds to agents as deployed: to a framework's own loop, on another interpreter, at a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from bench.fake_model import fake_model
from bench.framework_agents import N_WARM, installed, write_agents
from bench.processor import cpu_s, pss_mib_of
from bench.row import Row, rounded
from evaldesk.agents.remote.forwarding import open_gateway
from evaldesk.engine import LocalExecutor, drive
from evaldesk.engine.launch import OWN, Launcher, ProcessLauncher
from evaldesk.model import AgentRef, Case, Criterion, Expected, Limits, Session, TrialSpec, Turn
from evaldesk.testing.agent_evaluator import AgentEvaluator

OVER_LOOP = "1 model call: a trial over its bare loop: processor"
TIMES_LOOP = "1 model call: a trial by its bare loop: processor"
ADAPTER = "1 model call: a turn of its adapter by its bare loop: processor"
GATEWAY = "model gateway, over a straight call: processor"
WARM_EVALUATOR = "warm call of AgentEvaluator: processor"
N_TRIALS, N_PLAIN, N_CALLS, N_EVALUATIONS = 150, 1000, 1000, 5
N_ALTERNATED = 3
N_AT_ONCE, HELD_MS = 8, 1000
PLAIN = "async def root_agent(message):\n    return message\n"
REWARD = (Criterion("response_match_score", 0.8),)


def measure(folder: Path) -> Iterator[Row]:
    """Processor time alone: the endpoint answers at once, from a process of its own that is not counted."""
    (folder / "said.py").write_text(PLAIN)
    with fake_model(0) as address:
        write_agents(folder, address)
        for name in installed():
            yield from _over_its_loop(folder, name)
        yield asyncio.run(_gateway(address))
    with fake_model(HELD_MS) as address:
        write_agents(folder, address)
        for name in installed():
            yield from asyncio.run(_at_once(folder, name))
    yield from _players(folder)
    yield _warm_evaluator(folder)


def _over_its_loop(folder: Path, name: str) -> list[Row]:
    """Medians of what was measured in turn, since a processor that others use is slower for both.

    An adapter is what stands between a framework and a player; a whole trial has its driver and its storage, too.
    """
    command = [sys.executable, "-m", "bench.framework_agents", str(folder), name, str(N_TRIALS)]
    measured = [
        (
            _printed_ms(command),
            _printed_ms([*command, "adapter"]),
            asyncio.run(_trial_ms(folder, f"of_{name}", N_TRIALS)),
        )
        for _ in range(N_ALTERNATED)
    ]
    bare = statistics.median(bare for bare, _, _ in measured)
    over = statistics.median(trial - bare for bare, _, trial in measured)
    return [
        Row(f"{name}, 1 model call: its bare loop: processor", rounded(bare), "ms/turn"),
        Row(f"{name}, {ADAPTER}", rounded(statistics.median(turn / bare for bare, turn, _ in measured)), "times", 1.3),
        Row(f"{name}, {OVER_LOOP}", rounded(over), "ms/trial", 2),
        Row(f"{name}, {TIMES_LOOP}", rounded(statistics.median(trial / bare for bare, _, trial in measured)), "times"),
    ]


async def _at_once(folder: Path, name: str) -> list[Row]:
    """N_AT_ONCE players, each with a trial at the same time: all from their start, and the memory of one."""
    ref = AgentRef(name, f"of_{name}:root_agent", root=str(folder), folder=str(folder))
    specs = [TrialSpec(1, i, 0, Case("c", (Turn("hi"),)), ref, (), Limits(60)) for i in range(N_AT_ONCE)]
    before = cpu_s()
    executor = LocalExecutor(N_AT_ONCE, N_AT_ONCE)
    try:
        results = [result async for result in drive(specs, executor, N_AT_ONCE)]
        pss = [pss_mib_of(pid) for pid in executor.worker_pids]
        how = "forked" if executor.zygote_pid else f"not forked ({executor.unforked or 'not tried'})"
    finally:
        await executor.close()
    assert all(result.status == "finished" for result in results), results[0].error
    what = f"{name}, {len(pss)} players at once, {how}"
    return [
        Row(f"{what}: processor with their start", rounded(cpu_s() - before), "s"),
        Row(f"{what}: memory of each, shared pages in proportion", rounded(statistics.mean(pss)), "MiB"),
    ]


def _printed_ms(command: Sequence[str]) -> float:
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _players(folder: Path) -> list[Row]:
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    there = ProcessLauncher(str(bare / "bin" / "python"))
    same = asyncio.run(_trial_ms(folder, "said", N_PLAIN))
    other = asyncio.run(_trial_ms(folder, "said", N_PLAIN, launcher=there))
    graded = asyncio.run(_trial_ms(folder, "said", N_PLAIN, criteria=REWARD))
    own = asyncio.run(_trial_ms(folder, "said", N_WARM, isolation="process"))
    return [
        Row("function, on Evaldesk's interpreter: processor", rounded(same), "ms/trial"),
        Row("function, on another interpreter without packages: processor", rounded(other), "ms/trial"),
        Row("function, a process for each trial: processor", rounded(own), "ms/trial"),
        Row("grading hop of a trial, 1 metric: processor", rounded(graded - same), "ms/trial"),
    ]


async def _trial_ms(
    folder: Path,
    name: str,
    n: int,
    *,
    criteria: Sequence[Criterion] = (),
    launcher: Launcher = OWN,
    isolation: str = "shared",
) -> float:
    """Of this process and its workers, for a trial of one turn, one at a time as in a bare loop, once all is warm."""
    ref = AgentRef(name, f"{name}:root_agent", root=str(folder))
    case = Case("c", (Turn("hi", Expected(reference="hello")),))

    def specs(count: int) -> list[TrialSpec]:
        return [TrialSpec(1, i, 0, case, ref, tuple(criteria), Limits(60)) for i in range(count)]

    executor = LocalExecutor(1, 1, launcher=launcher, isolation=isolation)
    try:
        warm = [result async for result in drive(specs(N_WARM), executor, 1)]
        before = cpu_s()
        results = [result async for result in drive(specs(n), executor, 1)]
        spent_s = cpu_s() - before
    finally:
        await executor.close()
    assert all(result.status == "finished" for result in (*warm, *results)), results[0].error
    return 1000 * spent_s / n


async def _gateway(address: str) -> Row:
    """A call through the gateway, whose thread is in this process, less the same call straight to the endpoint."""
    gateway = open_gateway({**os.environ, "OPENAI_BASE_URL": address})
    try:
        with gateway.listening(Session("s"), lambda event: None):
            through = await asyncio.to_thread(_calls_ms, gateway.variables()["OPENAI_BASE_URL"])
        straight = await asyncio.to_thread(_calls_ms, address)
    finally:
        gateway.close()
    return Row(GATEWAY, rounded(through - straight), "ms/call", 0.4)


def _calls_ms(address: str) -> float:
    body = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
    with httpx.Client(timeout=30, trust_env=False) as client:
        for _ in range(N_WARM):
            client.post(f"{address}/chat/completions", json=body).raise_for_status()
        before = time.process_time()
        for _ in range(N_CALLS):
            client.post(f"{address}/chat/completions", json=body).raise_for_status()
        return 1000 * (time.process_time() - before) / N_CALLS


def _warm_evaluator(folder: Path) -> Row:
    """A call of AgentEvaluator once its workers are up."""
    agent = folder / "echo"
    agent.mkdir()
    (agent / "__init__.py").write_text("")
    (agent / "agent.py").write_text(PLAIN)
    turn = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "hi"}]}}
    path = folder / "hi.test.json"
    path.write_text(json.dumps({"eval_set_id": "hi", "eval_cases": [{"eval_id": "one", "conversation": [turn]}]}))
    (folder / "test_config.json").write_text('{"criteria": {"response_match_score": 0.8}}')

    def call() -> None:
        evaluation = AgentEvaluator.evaluate(str(agent), str(path), num_runs=1, print_detailed_results=False)
        if hasattr(evaluation, "__await__"):
            asyncio.run(_awaited(evaluation))

    call()
    before = cpu_s()
    for _ in range(N_EVALUATIONS):
        call()
    return Row(WARM_EVALUATOR, rounded((cpu_s() - before) / N_EVALUATIONS), "s", 0.2)


async def _awaited(evaluation: object) -> None:
    await evaluation  # type: ignore[misc]
