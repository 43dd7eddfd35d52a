"""How many trials a second, and what each costs, with everything durable."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from bench.processor import cpu_s
from bench.row import Row, rounded
from evaldesk.agents import agent_ref
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.model import AgentRef, Case, EvalSet, Expected, SessionInit, ToolCall, Turn
from evaldesk.settings import Settings

SCRIPTED = """
from evaldesk.model import Event, ToolCall


async def root_agent(message, state):
    call = ToolCall("lookup", {"word": message})
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result={"word": message, "meaning": "a thing"}, duration_ms=0.1)
    state["n"] = state.get("n", 0) + 1
    yield f"{message} is a thing that one can look up in a book of words."
"""
ANSWER = "is a thing that one can look up in a book of words."
SCRIPTED_TRIALS = "scripted agent, 2 turns, 1 tool call each"
N_SCRIPTED, N_DEMO = 1000, 400


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, seconds of processor over all processes, and the largest process in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measure(folder: Path) -> list[Row]:
    """1,000 trials of a scripted agent, then hello_world on its demo model."""
    agent = folder / "scripted"
    agent.mkdir()
    (agent / "__init__.py").write_text("")
    (agent / "agent.py").write_text(SCRIPTED)
    settings = Settings(workspace=folder, roots=(folder,), n_workers=os.cpu_count() or 2)
    plain = asyncio.run(_play(settings, agent_ref(str(agent)), _scripted_cases(N_SCRIPTED), concurrency=32))
    demo = asyncio.run(_play(settings, agent_ref("samples/hello_world"), _demo_cases(N_DEMO), concurrency=32))
    return [
        *_rows(SCRIPTED_TRIALS, N_SCRIPTED, plain, (250, 4, 150)),
        *_rows("hello_world on its demo model, 1 turn", N_DEMO, demo, (None, None, None)),
    ]


def _rows(what: str, n: int, cost: Cost, budgets: tuple[float | None, float | None, float | None]) -> list[Row]:
    return [
        Row(f"{what}: trials", rounded(n / cost.wall_s), "/s", budgets[0], rounded(cost.cpu_s)),
        Row(f"{what}: processor", rounded(1000 * cost.cpu_s / n), "ms/trial", budgets[1]),
        Row(f"{what}: largest process", rounded(cost.peak_mib), "MiB", budgets[2]),
    ]


def _scripted_cases(n: int) -> tuple[Case, ...]:
    def turn(word: str) -> Turn:
        return Turn(word, Expected((ToolCall("lookup", {"word": word}),), (), f"{word} {ANSWER}"))

    return tuple(Case(f"case_{i}", (turn(f"apple{i}"), turn(f"pear{i}"))) for i in range(n))


def _demo_cases(n: int) -> tuple[Case, ...]:
    expected = Expected((ToolCall("roll_die", {"sides": 20}),), (), "I rolled a 20-sided die and got 11.")
    start = SessionInit("hello_world", "user", {})
    return tuple(Case(f"case_{i}", (Turn("Roll a 20-sided die.", expected),), None, start) for i in range(n))


async def _play(settings: Settings, agent: AgentRef, cases: tuple[Case, ...], *, concurrency: int) -> Cost:
    before = cpu_s()
    started = time.perf_counter()
    desk = Desk.open(settings)
    subject = RunSubject(agent=agent, evalset=EvalSet("bench", cases=cases), evalset_id="bench")
    plan = desk.runs.plan_for(subject, RunOptions(concurrency=concurrency))
    summary = await desk.runs.run_to_end(plan, lambda _: None)
    wall_s = time.perf_counter() - started
    await desk.close()
    print(f"  {summary.n_passed} passed, {summary.n_failed} failed, {summary.n_errored} errored")
    return Cost(wall_s, cpu_s() - before, _peak_mib())


def _peak_mib() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024
