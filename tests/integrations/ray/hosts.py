"""Hosts for tests: in the process of the test, on a cluster of Ray, and such as fail when a test says so."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.engine import Executor
from evaldesk.engine.executors import open_executor
from evaldesk.engine.frames import cancelled
from evaldesk.integrations.ray.executor import HostLostError, HostsExecutor
from evaldesk.integrations.ray.host import Answer, Host, HostFacts, HostJob, HostSetup, own_versions
from evaldesk.model import AgentRef, RunConfig, TrialResult, TrialSpec
from evaldesk.model.evalset import JsonValue
from evaldesk.model.run import ExecutorConfig
from evaldesk.wire import from_json, to_json


class InProcess:
    """Real hosts without Ray between."""

    waits_for = "nothing"

    def __init__(self, setup: HostSetup, home: str) -> None:
        self._setup = setup
        self._home = home
        self._hosts: list[LocalHost] = []

    async def connect(self) -> None:
        pass

    async def open_host(self) -> LocalHost:
        host = LocalHost(Host(self._setup))
        host.host._home = self._home
        self._hosts.append(host)
        return host

    async def close(self) -> None:
        for each in self._hosts:
            executor = each.host._executor
            if executor:
                await each.host._here(executor.close())


class LocalHost:
    """A host of this process, with everything that it is told and answers as JSON."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def exchange(self, jobs: Sequence[HostJob]) -> Sequence[Answer]:
        return from_json(await self.host.exchange(to_json(jobs)), list[Answer])

    async def facts(self) -> HostFacts:
        return from_json(await self.host.facts(), HostFacts)

    async def cancel(self) -> None:
        await self.host.cancel()

    def kill(self) -> None:
        pass


class ScriptedCluster:
    """Hosts that end their trials when `play` says so, and are lost when a test says so."""

    waits_for = "a node with 4 free CPUs"

    def __init__(self, play: Callable[[TrialSpec], TrialResult] | None = None, delay_s: float = 0.0) -> None:
        self.play = play
        self.delay_s = delay_s
        self.hosts: list[ScriptedHost] = []
        self.versions = own_versions()
        self.no_room = ""
        self.breaks = False
        self.is_full = False
        self.is_closed = False

    async def connect(self) -> None:
        pass

    async def open_host(self) -> ScriptedHost:
        if self.no_room:
            raise HostLostError(self.no_room)
        if self.is_full:
            await asyncio.Event().wait()
        host = ScriptedHost(self, f"vm-{len(self.hosts)}")
        self.hosts.append(host)
        return host

    async def close(self) -> None:
        self.is_closed = True


class ScriptedHost:
    def __init__(self, cluster: ScriptedCluster, name: str) -> None:
        self.name = name
        self.lost = ""
        self.n_asked = self.n_calls = 0
        self._cluster = cluster
        self._held: set[asyncio.Future[TrialResult]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[Answer] = []
        self._turn = asyncio.Event()

    async def exchange(self, jobs: Sequence[HostJob]) -> Sequence[Answer]:
        self._check()
        self.n_calls += 1
        if self._cluster.breaks:
            raise ValueError("not what it should say")
        self._tasks |= {asyncio.create_task(self._play(job)) for job in jobs}
        self._turn.set()
        turn = self._turn = asyncio.Event()
        if self._ended:
            turn.set()
        await turn.wait()
        self._check()
        ended, self._ended = self._ended, []
        return ended

    async def _play(self, job: HostJob) -> None:
        spec = job.trial
        assert spec is not None
        self.n_asked += 1
        if self._cluster.play:
            await asyncio.sleep(self._cluster.delay_s)
            result = self._cluster.play(spec)
        else:
            held: asyncio.Future[TrialResult] = asyncio.get_running_loop().create_future()
            self._held.add(held)
            held.spec = spec  # type: ignore[attr-defined]
            try:
                result = await held
            finally:
                self._held.discard(held)
        self._ended.append(Answer(job.number, result))
        self._turn.set()

    async def facts(self) -> HostFacts:
        self._check()
        return HostFacts(self.name, *self._cluster.versions, n_workers=2)

    async def cancel(self) -> None:
        for held in [*self._held]:
            held.set_result(cancelled(held.spec))  # type: ignore[attr-defined]

    def lose(self, why: str) -> None:
        self.lost = why
        self._turn.set()
        for task in self._tasks:
            task.cancel()

    def kill(self) -> None:
        self.lose(self.lost or "it was ended")

    def _check(self) -> None:
        if self.lost:
            raise HostLostError(self.lost)


def finished(spec: TrialSpec) -> TrialResult:
    return replace(cancelled(spec), status="finished", verdict="passed", stop_reason="")


def run_on_ray(address: str, root: Path, **options: JsonValue) -> RunConfig:
    """A run of an agent below `root` on the cluster."""
    usual: dict[str, JsonValue] = {"address": address, "hosts": 2, "workers_per_host": 1, "cpus_per_host": 0.5}
    executor = ExecutorConfig("cluster", "ray", usual | options)
    return RunConfig(AgentRef("a", "a:agent", str(root), str(root)), "set", concurrency=4, executor=executor)


def in_process(root: Path) -> Executor:
    """An executor on two hosts of this process, for agents below `root`."""
    return HostsExecutor(InProcess(HostSetup(str(root), 1, 2), home=str(root)), 4, 2)


def on_ray(address: str, root: Path, **options: JsonValue) -> Executor:
    def refuse(_: RunConfig) -> Executor:
        raise AssertionError("not on this machine")

    return open_executor(run_on_ray(address, root, **options), refuse, os.environ)
