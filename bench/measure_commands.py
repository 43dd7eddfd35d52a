"""Whole commands as a person starts them: what one trial costs, what each further one adds, and how long many wait.

Where `inspect_ai` can be installed into an environment of its own, it plays the same trials in turn with us.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.fake_model import fake_model
from bench.framework_agents import installed, write_agents
from bench.processor import cpu_s
from bench.row import Row, rounded

ASLEEP = """
import asyncio

async def root_agent(message):
    await asyncio.sleep(0.2)
    return "hello"
"""
INSPECT = """
import asyncio
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import exact
from inspect_ai.solver import solver

@solver
def asleep():
    async def solve(state, generate):
        await asyncio.sleep(0.2)
        state.output = ModelOutput.from_content("none", "hello")
        return state
    return solve

@task
def asked(n=1):
    return Task([Sample(input="hi", target="hello", id=i) for i in range(n)], solver=asleep(), scorer=exact())
"""
OVER_IMPORT = "one trial over a first turn of its own, whole processes: processor"
ONE_TRIAL = "one trial of hello_world, whole process: processor"
SLOPE = "each further trial, whole process: processor"
SLEEP_S = 0.2
MANY = 1000
AT_ONCE = (100, 500)
BY_DEFAULT, DEFAULT_AT_ONCE = 40, 4
N_ALTERNATED = 3


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock and of processor, children included, from the start of a process to its end."""

    wall_s: float
    cpu_s: float


def efficiency(at_once: int) -> str:
    """The name of a row."""
    return f"eval of {MANY:,} trials x 200 ms at {at_once} at once, start included: efficiency"


def measure(folder: Path) -> Iterator[Row]:
    """One trial, many trials, the default settings, a trial of each framework, and the peer."""
    (folder / "agent.py").write_text(ASLEEP)
    for n in (1, BY_DEFAULT, MANY):
        (folder / f"set_{n}.evalset.json").write_text(json.dumps(_evalset(n)))
    hello = _median(lambda: _timed(_eval("samples/hello_world", "hello_world:roll_16"), folder))
    yield Row(ONE_TRIAL, rounded(hello.cpu_s), "s", 1.5, rounded(hello.cpu_s))
    yield Row("one trial of hello_world, whole process", rounded(hello.wall_s), "s", None, rounded(hello.cpu_s))
    one = _median(lambda: _timed(_eval("agent.py", "set_1.evalset.json"), folder))
    for at_once in AT_ONCE:
        command = _eval("agent.py", f"set_{MANY}.evalset.json", "--concurrency", str(at_once))
        many = _median(partial(_timed, command, folder))
        ideal_s = MANY * SLEEP_S / at_once
        budget = 0.85 if at_once == AT_ONCE[0] else None
        yield Row(efficiency(at_once), rounded(ideal_s / many.wall_s), "", budget, rounded(many.cpu_s))
        what = f"the same at {at_once} at once, from its start to its end as stored: efficiency"
        yield Row(what, rounded(ideal_s / _last_active_s(folder)), "", None, rounded(many.cpu_s))
        if at_once == AT_ONCE[0]:
            slope_ms = 1000 * (many.cpu_s - one.cpu_s) / (MANY - 1)
            yield Row(SLOPE, rounded(slope_ms), "ms/trial", None, rounded(many.cpu_s))
    few = _timed(_eval("agent.py", f"set_{BY_DEFAULT}.evalset.json"), folder)
    what = f"eval of {BY_DEFAULT} trials x 200 ms with default settings, start included: efficiency"
    ideal_s = BY_DEFAULT * SLEEP_S / DEFAULT_AT_ONCE
    yield Row(what, rounded(ideal_s / few.wall_s), "", None, rounded(few.cpu_s))
    with fake_model(0) as address:
        write_agents(folder, address)
        for name in installed():
            yield from _fixed_cost(folder, name)
    yield from _beside_inspect(folder)


def _fixed_cost(folder: Path, name: str) -> Iterator[Row]:
    """A trial of a framework's agent beside a program that imports the agent and plays one turn as the framework does.

    Frameworks import at their first turn what they need for it (ADK its model clients), so an import alone is no start.
    """
    alone = (sys.executable, "-m", "bench.framework_agents", str(folder), name, "0")
    own = _median(lambda: _timed(alone, Path()))
    cost = _median(lambda: _timed(_eval(f"of_{name}:root_agent", "set_1.evalset.json"), folder))
    whole = f"one trial of an agent of {name}, whole process: processor"
    yield Row(whole, rounded(cost.cpu_s), "s", None, rounded(cost.cpu_s))
    what = f"import of an agent of {name} and one turn of its own: processor"
    yield Row(what, rounded(own.cpu_s), "s", None, rounded(own.cpu_s))
    yield Row(f"{name}, {OVER_IMPORT}", rounded(cost.cpu_s - own.cpu_s), "s", 1, rounded(cost.cpu_s))


def _last_active_s(folder: Path) -> float:
    """Seconds between the start of the newest run and its end, as it is stored."""
    command = [sys.executable, "-m", "evaldesk", "run", "info", "--json"]
    listed = subprocess.run([*command[:-2], "list", "--json"], cwd=folder, capture_output=True, check=True)
    newest = str(json.loads(listed.stdout)["items"][0]["id"])
    told = subprocess.run([*command, newest], cwd=folder, capture_output=True, check=True)
    return float(json.loads(told.stdout)["data"]["results"]["active_ms"]) / 1000


def _evalset(n: int) -> object:
    said = [{"parts": [{"text": text}]} for text in ("hi", "hello")]
    turn = dict(zip(("user_content", "final_response"), said, strict=True))
    cases = [{"eval_id": f"c{number}", "conversation": [turn]} for number in range(n)]
    return {"eval_set_id": f"set_{n}", "eval_cases": cases}


def _eval(agent: str, evalset: str, *options: str) -> Sequence[str]:
    command = (sys.executable, "-m", "evaldesk", "eval", agent, evalset, "--quiet", *options)
    return command if agent.startswith("samples") else (*command, "--criterion", "response_exact=0")


def _timed(command: Sequence[str], folder: Path) -> Cost:
    before, started = cpu_s(), time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    cost = Cost(time.perf_counter() - started, cpu_s() - before)
    if done.returncode not in (0, 1):  # a trial that failed is a trial
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-2000:]}")
    return cost


def _median(call: Callable[[], Cost]) -> Cost:
    costs = [call() for _ in range(N_ALTERNATED)]
    return Cost(*(statistics.median(getattr(cost, name) for cost in costs) for name in ("wall_s", "cpu_s")))


def _beside_inspect(folder: Path) -> Iterator[Row]:
    """Both play 1 and MANY trials at 100 at once, in turn, so that the machine is the same for both."""
    python = _inspect(folder)
    if python is None:
        return
    (folder / "asked.py").write_text(INSPECT)

    def theirs(n: int) -> Sequence[str]:
        options = (
            "--model",
            "none/none",
            "--max-samples",
            "100",
            "--display",
            "none",
            "--log-dir",
            str(folder / "logs"),
        )
        return (str(python.with_name("inspect")), "eval", "asked.py", "-T", f"n={n}", *options)

    def ours(n: int) -> Sequence[str]:
        return _eval("agent.py", f"set_{n}.evalset.json", "--concurrency", "100")

    for n in (1, MANY):
        costs: dict[str, list[Cost]] = {"inspect_ai": [], "Evaldesk": []}
        for _ in range(N_ALTERNATED):
            costs["inspect_ai"].append(_timed(theirs(n), folder))
            costs["Evaldesk"].append(_timed(ours(n), folder))
        for name, found in costs.items():
            spent = statistics.median(cost.cpu_s for cost in found)
            took = statistics.median(cost.wall_s for cost in found)
            what = f"{name}, {n:,} {'trials' if n > 1 else 'trial'} x 200 ms at 100 at once, in turn"
            yield Row(what, rounded(took), "s", None, rounded(spent))
            yield Row(f"{what}: processor", rounded(spent), "s", None, rounded(spent))


def _inspect(folder: Path) -> Path | None:
    """The interpreter of an environment with inspect_ai: the one of EVALDESK_BENCH_PEER, else a new one; else None."""
    if named := os.environ.get("EVALDESK_BENCH_PEER"):
        return Path(named)
    uv, home = str(Path(sys.executable).with_name("uv")), folder / "peer"
    for command in ((uv, "venv", "--quiet", home), (uv, "pip", "install", "--quiet", "--python", home, "inspect_ai")):
        if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
            print("  inspect_ai cannot be installed here", file=sys.stderr)
            return None
    return home / "bin" / "python"
