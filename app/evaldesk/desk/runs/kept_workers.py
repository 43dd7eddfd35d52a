"""Workers that several evaluations share, and that outlive them: an agent is imported once, not for each of them.

Idle worker processes stand on one event loop of this process, in a thread of its own.
(decision 098)
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import AsyncIterator, Coroutine, Hashable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evaldesk.background_loop import BackgroundLoop
from evaldesk.engine import ChatPlayers, Executor, LocalExecutor
from evaldesk.engine.driver.code_files import version_of
from evaldesk.engine.driver.grading_files import GradingFiles
from evaldesk.engine.driver.worker_process import Tasks
from evaldesk.engine.launch import Launcher, launcher_of
from evaldesk.engine.worker.attempt import Pause
from evaldesk.metrics import is_function
from evaldesk.model import AgentRef, RunConfig
from evaldesk.model.run import Place

MAX_KEPT = 2
MAX_AGENTS = 4
MAX_IDLE_S = 600.0
CLOSE_S = 10.0
OF_PYTEST = "PYTEST_"
"""The beginning of variables that pytest sets anew for each test."""

T = TypeVar("T")


class _Lent:
    """Workers for one run, which are given back at its end; those of a cancelled run are ended."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor
        self.end_reason = ""
        self.submit = executor.submit
        self.results = executor.results
        self.cancel = executor.cancel

    @property
    def is_cancelled(self) -> bool:
        return self._executor.is_cancelled

    @property
    def pauses(self) -> tuple[Pause, ...]:
        return self._executor.pauses

    @property
    def places(self) -> tuple[Place, ...]:
        return self._executor.places

    @property
    def grading_changes(self) -> list[str]:
        return self._executor.grading_changes

    async def close(self) -> None:
        await (self._executor.close() if self._executor.is_cancelled else self._executor.release())


@dataclass(slots=True)
class SharedWorkers:
    """The workers of several evaluations: for descriptions, and for playing, by agent and its version.

    They are for one evaluation at a time, with up to `n_workers` players for each agent. `can_stay` until one of them
    imports functions of the user, or an agent without a folder: changes of such files are not seen.
    """

    host: ChatPlayers
    n_workers: int = 1
    executors: dict[tuple[AgentRef, int, str, Launcher], tuple[str, LocalExecutor]] = field(default_factory=dict)
    retired: list[LocalExecutor] = field(default_factory=list)
    can_stay: bool = True

    def lend(self, ref: AgentRef, config: RunConfig, grading_files: GradingFiles, launcher: Launcher) -> Executor:
        """The workers of an agent for one run; the process that described the agent plays it, but for a sandbox."""
        self.can_stay &= bool(ref.folder) and not any(map(is_function, config.criteria))
        key, version = (ref, config.concurrency, config.isolation, launcher), version_of(ref)
        known_version, executor = self.executors.pop(key, ("", None))
        if executor and (known_version != version or executor.is_cancelled):
            self.retired.append(executor)
            executor = None
        if executor is None:
            is_as_described = launcher == launcher_of(ref)
            players = [player for player in (is_as_described and self.host.give_away(ref, version),) if player]
            executor = LocalExecutor(
                self.n_workers,
                config.concurrency,
                launcher=launcher,
                players=players,
                isolation=config.isolation,
                folder=ref.folder,
                grading_files=grading_files,
            )
        self.executors[key] = version, executor  # put last: the order is that of use
        if len(self.executors) > MAX_AGENTS:
            self.retired.append(self.executors.pop(next(iter(self.executors)))[1])
        return _Lent(executor)

    async def tidy(self) -> None:
        """End the workers of changed agents, and of the agents played longest ago."""
        retired, self.retired = self.retired, []
        await asyncio.gather(*(executor.close() for executor in retired))

    async def close(self) -> None:
        """End all workers."""
        self.retired += [executor for _, executor in self.executors.values()]
        self.executors.clear()
        await asyncio.gather(self.host.close(), self.tidy())


class _WorkerCache:
    """Up to MAX_KEPT idle sets of workers, each with the surroundings that it was started in, for MAX_IDLE_S."""

    def __init__(self) -> None:
        self._idle: list[tuple[Hashable, SharedWorkers]] = []
        self._tasks = Tasks()

    def take(self, surroundings: Hashable) -> SharedWorkers:
        """Workers that were started in these surroundings, or new ones."""
        for entry in self._idle:
            if entry[0] == surroundings:
                self._idle.remove(entry)
                return entry[1]
        return SharedWorkers(ChatPlayers())

    async def give_back(self, surroundings: Hashable, workers: SharedWorkers) -> None:
        """Keep the workers for the next evaluation; surplus ones are ended."""
        if not workers.can_stay:
            await workers.close()
            return
        await workers.tidy()
        entry = (surroundings, workers)
        self._idle.append(entry)
        atexit.unregister(_close)
        atexit.register(_close)
        asyncio.get_running_loop().call_later(MAX_IDLE_S, self._drop, entry)
        while len(self._idle) > MAX_KEPT:
            await self._idle.pop(0)[1].close()

    async def close(self) -> None:
        """End all that are idle."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(workers.close() for _, workers in idle))

    def _drop(self, entry: tuple[Hashable, SharedWorkers]) -> None:
        if any(each is entry for each in self._idle):
            self._idle.remove(entry)
            self._tasks.begin(entry[1].close())


SHARED: ContextVar[SharedWorkers | None] = ContextVar("shared_workers", default=None)

_loop, _worker_cache = BackgroundLoop("evaldesk-evaluations"), _WorkerCache()
_of_parents: list[object] = []


@asynccontextmanager
async def shared_workers() -> AsyncIterator[None]:
    """Evaluations inside share workers, which are kept for the next ones; only inside of `on_kept_loop`."""
    surroundings = _surroundings()
    workers = _worker_cache.take(surroundings)
    token = SHARED.set(workers)
    try:
        yield
    finally:
        SHARED.reset(token)
        await _worker_cache.give_back(surroundings, workers)


def on_kept_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` on the loop of the kept workers; an interrupted caller ends it."""
    future = asyncio.run_coroutine_threadsafe(work, _loop.loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise


async def awaited_on_kept_loop(work: Coroutine[Any, Any, T]) -> T:
    """As `on_kept_loop`, for a caller in a loop of its own, whose cancellation ends it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop.loop))


def _surroundings() -> Hashable:
    """The surroundings of a worker process at its start: working folder and environment."""
    environment = frozenset(each for each in os.environ.items() if not each[0].startswith(OF_PYTEST))
    return os.getcwd(), environment


def _close() -> None:
    if _worker_cache._idle:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_worker_cache.close(), _loop.loop).result(CLOSE_S)


def _reset_after_fork() -> None:
    """In a forked process the thread of the loop is gone, and the workers are those of the parent."""
    global _loop, _worker_cache
    _of_parents.extend((_loop, _worker_cache))  # not collected: that would end the workers
    _loop, _worker_cache = BackgroundLoop("evaldesk-evaluations"), _WorkerCache()


# An evaluation inside a fork of the user's process needs workers of its own (decision 098).
os.register_at_fork(after_in_child=_reset_after_fork)
