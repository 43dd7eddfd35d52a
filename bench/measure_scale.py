"""What a trial costs beyond one machine: the driver alone on each store, and hosts of Ray beside local workers.

PostgreSQL is measured at the database of EVALDESK_STORE, or on a server that is started for it, and Ray where it is
installed; else a line says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.postgresql_server import running_server

from bench.measure_pages import N_ASKED, ask, served
from bench.measure_trials import SCRIPTED
from bench.row import Row, rounded
from bench.seed import copy_run, multiply, play
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import Executor, GradeSpec, LocalExecutor, drive
from evaldesk.engine.executors import open_executor
from evaldesk.engine.worker.attempt import Pause
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    EvalSet,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    TrialResult,
    TrialSpec,
    Turn,
)
from evaldesk.model.evalset import JsonValue
from evaldesk.model.run import ExecutorConfig, Place
from evaldesk.settings import STORE_VARIABLE, DatabaseUrl, Settings, database_url
from evaldesk.store import Store

N_ALONE = 50_000
N_LARGE, N_RUNS = 1_000_000, 1_000
N_WARM, N_ON_HOSTS = 1_000, 4_000
AT_ONCE, MANY_AT_ONCE = 16, 200
MOST_S = 600
ON_HOSTS = f"2 hosts of Ray, {N_ON_HOSTS:,} trials, {MANY_AT_ONCE} at once"


def alone(name: str) -> str:
    """The beginning of the names of rows."""
    return f"driver and {name} alone, {N_ALONE:,} trials"


def measure(folder: Path) -> Iterator[Row]:
    """The driver on its stores, then one machine beside a cluster of two nodes."""
    yield from _alone("SQLite", folder / "evaldesk.db", folder, 0.25)
    yield from _pages("SQLite", None, folder)
    named = os.environ.get(STORE_VARIABLE)
    try:
        with nullcontext(database_url(named, STORE_VARIABLE)) if named else running_server() as url:
            yield from _alone("PostgreSQL", url, folder, 0.40)
            yield from _pages("PostgreSQL", url, folder)
    except pytest.skip.Exception as reason:
        print(f"  PostgreSQL is not measured: {reason}")
    yield from _on_hosts(folder)


class Instant:
    """Ends every trial at once, so that all of the time is the driver's."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.end_reason = ""
        self.pauses: Sequence[Pause] = ()
        self.places: Sequence[Place] = ()
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        assert isinstance(spec, TrialSpec)
        score = Score("tool_trajectory_avg_score", 1.0, None, 1.0, True)
        trial = TrialResult(spec.run_id, spec.case_index, spec.trial_index, "finished", "passed", scores=(score,))
        self._results.put_nowait(replace(trial, attempt=spec.attempt))

    async def results(self) -> AsyncIterator[TrialResult]:
        while (result := await self._results.get()) is not None:
            yield result

    grading_changes: Sequence[str] = ()

    async def cancel(self) -> None:
        self.is_cancelled = True

    async def close(self) -> None:
        self._results.put_nowait(None)


def _alone(name: str, place: Path | DatabaseUrl, folder: Path, budget: float) -> list[Row]:
    cases = tuple(Case(f"case_{index}", (Turn("hello"),)) for index in range(N_ALONE // 10))
    with Store.open(place) as store:
        desk = RunDesk(Settings(folder, ()), store, open_executor=lambda _: Instant())
        subject = RunSubject(AgentRef("echo", "echo:agent"), EvalSet("set", cases=cases), "set")
        plan = desk.plan_for(subject, RunOptions(n=10, concurrency=32))
        began, cpu_s = time.perf_counter(), time.process_time()
        asyncio.run(_played(desk, plan))
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - began
    what = alone(name)
    rows = [
        Row(f"{what}: processor", rounded(1000 * cpu_s / N_ALONE), "ms/trial", budget),
        Row(f"{what}: trials", rounded(N_ALONE / wall_s), "/s", 2_000),
    ]
    if isinstance(place, Path):
        n_bytes = sum(each.stat().st_size for each in place.parent.glob(f"{place.name}*"))
        rows.append(Row(f"{what}: size", rounded(n_bytes / 1024 / N_ALONE), "KiB/trial", 2.0))
    return rows


def _pages(name: str, url: DatabaseUrl | None, folder: Path) -> list[Row]:
    """The list of a thousand runs with N_LARGE trials; beside them, one run with as many."""
    workspace = folder / f"pages-{name}"
    (workspace / ".evaldesk").mkdir(parents=True)
    chance = random.Random(1)
    n = N_LARGE // N_RUNS // 100
    with Store.open(url or workspace / ".evaldesk" / "evaldesk.db") as store:
        copy_run(store, play(store, chance, 100, n, has_words=False), N_RUNS - 1)
        run_id = play(store, chance, 1_000, 10, has_words=False)
        multiply(store, run_id, N_LARGE // 10_000)
    rows = []
    with patched(STORE_VARIABLE, str(url) if url else ""), served(workspace) as connection:
        for what, path in (("list of runs", "/runs"), ("page of the run", f"/runs/{run_id}")):
            seen = ask(connection, path)
            named = f"{name}, {N_RUNS:,} runs and one of {N_LARGE:,} trials, {what}"
            rows.append(Row(f"{named}: processor", rounded(1000 * seen.cpu_s / N_ASKED), "ms", 25))
            rows.append(Row(named, rounded(seen.ms), "ms"))
    return rows


@contextmanager
def patched(name: str, value: str) -> Iterator[None]:
    """The variable has that value for processes that are started meanwhile; without one it is left."""
    before = os.environ.get(name)
    if value:
        os.environ[name] = value
    try:
        yield
    finally:
        if value and before is None:
            del os.environ[name]
        elif value and before is not None:
            os.environ[name] = before


async def _played(desk: RunDesk, plan: object) -> None:
    await desk.run_to_end(plan, lambda _: None)  # type: ignore[arg-type]
    await desk.close()


def _on_hosts(folder: Path) -> list[Row]:
    """Both are measured in one network namespace, whose processes are those of the cluster and of the workers."""
    from tests.ray_cluster import inside, why_not

    reason = why_not()
    if reason:
        print(f"  Ray is not measured: {reason}")
        return []
    command = inside(sys.executable, "-m", "bench.measure_scale", str(folder))
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_S)
    except subprocess.TimeoutExpired:
        print(f"  Ray is not measured: the cluster took more than {MOST_S} s")
        return []
    if done.returncode:
        print(f"  Ray is not measured: {done.stderr.strip().splitlines()[-1]}")
        return []
    found = json.loads(done.stdout.splitlines()[-1])
    return [row for at_once in (AT_ONCE, MANY_AT_ONCE) for row in _compared(at_once, found[str(at_once)])]


def _compared(at_once: int, found: dict[str, tuple[float, float, float]]) -> list[Row]:
    (local_ms, local_own_ms, local_s), (ray_ms, ray_own_ms, ray_s) = found["local"], found["ray"]
    each = f"{N_ON_HOSTS:,} trials, {at_once} at once"
    return [
        Row(f"workers of this machine, {each}: processor", rounded(local_ms), "ms/trial"),
        Row(f"workers of this machine, {each}: of the driver", rounded(local_own_ms), "ms/trial"),
        Row(f"2 hosts of Ray, {each}: processor", rounded(ray_ms), "ms/trial"),
        Row(f"2 hosts of Ray, {each}: of the driver", rounded(ray_own_ms), "ms/trial", 0.70),
        Row(f"Ray against this machine, {at_once} at once: processor", rounded(ray_ms / local_ms), "times", 1.3),
        Row(f"Ray against this machine, {at_once} at once: wall", rounded(ray_s / local_s), "times"),
    ]


def _measure_inside(folder: Path) -> dict[int, dict[str, tuple[float, float, float]]]:
    """Milliseconds of processor per trial over all processes and of the driver, and seconds on the clock."""
    from tests.ray_cluster import local_cluster

    root = folder / "hosts"
    root.mkdir()
    (root / "scripted_agent.py").write_text(SCRIPTED)
    ref = AgentRef("scripted", "scripted_agent:root_agent", str(root), str(root))
    both = (AT_ONCE, MANY_AT_ONCE)
    local = {at_once: asyncio.run(_timed(LocalExecutor, ref, "", at_once)) for at_once in both}
    with local_cluster(2) as cluster:
        on_ray = {at_once: asyncio.run(_timed(LocalExecutor, ref, cluster.address, at_once)) for at_once in both}
    return {at_once: {"local": local[at_once], "ray": on_ray[at_once]} for at_once in both}


async def _timed(local: type[LocalExecutor], ref: AgentRef, address: str, at_once: int) -> tuple[float, float, float]:
    options: dict[str, JsonValue] = {"address": address, "hosts": 2, "workers_per_host": 1, "cpus_per_host": 1.0}
    on = ExecutorConfig("cluster", "ray", options) if address else ExecutorConfig()
    config = RunConfig(ref, "set", concurrency=at_once, executor=on)
    executor: Executor = open_executor(config, lambda _: local(2, at_once), os.environ)
    specs = [_spec(ref, index) for index in range(N_WARM + N_ON_HOSTS)]
    n, cpu_s, own_s, began = 0, 0.0, 0.0, 0.0
    async for result in drive(specs, executor, at_once):
        assert result.verdict == "passed", result
        n += 1
        if n == N_WARM:
            cpu_s, own_s, began = _cpu_of_namespace(), time.process_time(), time.perf_counter()
    found = _cpu_of_namespace() - cpu_s, time.process_time() - own_s, time.perf_counter() - began
    await executor.close()
    return 1000 * found[0] / N_ON_HOSTS, 1000 * found[1] / N_ON_HOSTS, found[2]


def _spec(ref: AgentRef, index: int) -> TrialSpec:
    expected = Expected((ToolCall("lookup", {"word": "apple"}),), (), "")
    case = Case(f"case_{index}", (Turn("apple", expected),))
    return TrialSpec(1, index, 0, case, ref, criteria=(Criterion("tool_trajectory_avg_score", 1.0),))


def _cpu_of_namespace() -> float:
    """Seconds of processor of the processes that are alive in this network namespace."""
    total = 0
    own = os.readlink("/proc/self/ns/net")
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "ns/net") == own:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(_measure_inside(Path(sys.argv[1]))))
