"""Executors carry out trials, here in worker processes on this machine; `drive` hands them the trials of a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Protocol

from evaldesk.engine.frames import GradeSpec, cancelled, functions_check, grade_spec, unplayed
from evaldesk.engine.host.process import WarmPool, WorkerProcess
from evaldesk.engine.host.worker_set import WorkerSet
from evaldesk.engine.launch import OWN, Launcher
from evaldesk.engine.worker.attempt import Pause, active
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec


class Executor(Protocol):
    """Carries out trials. Every submitted spec has exactly one result, also after a failure.

    An executor that knows why the models of its trials wait says so by `pauses`, a sequence of Pause.
    """

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called: a spec submitted from now on ends cancelled."""

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial to play and grade, or a played one to grade again; waits for room."""

    def results(self) -> AsyncIterator[TrialResult]:
        """Results in the order in which they come, until `close`; for one reader."""

    async def cancel(self) -> None:
        """End all trials under way as cancelled; returns when they have ended."""

    async def close(self) -> None:
        """Give back threads and processes; trials still under way end cancelled."""


async def drive(
    specs: Iterable[TrialSpec | GradeSpec], executor: Executor, concurrency: int
) -> AsyncGenerator[TrialResult]:
    """One result for every spec that was handed out, in the order in which they end.

    A pool, not waves: the next trial begins when one ends, also while the caller is busy with a result. Once the
    executor is cancelled nothing more is handed out.
    """
    async with aclosing(_each(specs)) as given, aclosing(drive_batches(given, executor, concurrency)) as batches:
        async for batch in batches:
            for result in batch:
                yield result


async def drive_batches(
    specs: AsyncIterator[TrialSpec | GradeSpec], executor: Executor, concurrency: int
) -> AsyncGenerator[list[TrialResult]]:
    """As `drive`, for specs that are read first; gives the trials that ended meanwhile together, to be stored together.

    No batch is empty.
    """
    driver = _Driver(specs, executor, concurrency)
    task = asyncio.create_task(driver.run())
    try:
        while batch := await driver.take(task):
            yield batch
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Driver:
    def __init__(self, specs: AsyncIterator[TrialSpec | GradeSpec], executor: Executor, concurrency: int) -> None:
        self._specs = specs
        self._executor = executor
        self._concurrency = concurrency
        self._ended: list[TrialResult] = []
        self._has_news = asyncio.Event()

    async def run(self) -> None:
        """Hand out and collect until nothing is under way."""
        try:
            results = self._executor.results()
            n_under_way = 0
            while True:
                while n_under_way < self._concurrency and await self._hand_out():
                    n_under_way += 1
                if not n_under_way:
                    return
                ended = await anext(results, None)
                if ended is None and self._executor.is_cancelled:
                    return  # it was closed
                if ended is None:
                    trials = "1 trial" if n_under_way == 1 else f"{n_under_way} trials"
                    raise EvaldeskError(f"the executor ended while {trials} had no result")
                self._ended.append(ended)
                n_under_way -= 1
                self._has_news.set()
        finally:
            self._has_news.set()

    async def take(self, task: asyncio.Task[None]) -> list[TrialResult]:
        """The trials that ended since the last call; waits for at least one, empty at the end."""
        while not self._ended and not task.done():
            self._has_news.clear()
            await self._has_news.wait()
        batch, self._ended = self._ended, []
        return batch

    async def _hand_out(self) -> bool:
        if self._executor.is_cancelled:
            return False
        spec = await anext(self._specs, None)
        if spec is None:
            return False
        await self._executor.submit(spec)
        return True


async def _each(specs: Iterable[TrialSpec | GradeSpec]) -> AsyncGenerator[TrialSpec | GradeSpec]:
    for spec in specs:
        yield spec


CANCEL_GRACE_S = 4.0
GRADED_AT_ONCE = 8


class LocalExecutor:
    """Carries out up to `concurrency` trials at once, in `n_workers` players and as many graders.

    A player has the agent and the user's side of a case; a grader has the expectations and the metrics, and never the
    agent. The process of this executor hands the transcript from one to the other, and checks what both answer. Players
    come to be by `launcher`, graders always on Evaldesk's own interpreter. `players` are up already and belong to this
    executor from now on.
    """

    def __init__(
        self,
        n_workers: int = 2,
        concurrency: int = 4,
        *,
        environment: Mapping[str, str] | None = None,
        warm_pool: WarmPool | None = None,
        launcher: Launcher = OWN,
        players: Sequence[WorkerProcess] = (),
    ) -> None:
        self.is_cancelled = False
        self._warm_pool = warm_pool
        shared = partial(
            WorkerSet, n_workers, concurrency, environment=os.environ if environment is None else environment
        )
        self._players = shared(
            self._played,
            warm_pool=warm_pool if launcher is OWN else None,
            purpose="player",
            launcher=launcher,
            ready=players,
        )
        self._graders = shared(self._graded, warm_pool=warm_pool, purpose="grader", n_before_next=GRADED_AT_ONCE)
        self._room = asyncio.Semaphore(concurrency)
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()
        self._check: tuple[GradeSpec, asyncio.Future[ErrorRecord | None]] | None = None
        self._is_closed = False

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the players and graders that are up."""
        return [*self._players.pids, *self._graders.pids]

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """The reasons why trials under way wait."""
        return active([*self._players.pauses, *self._graders.pauses])

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial once fewer than `concurrency` are under way. Raises UsageError after `close`."""
        await self._room.acquire()
        if self._is_closed:
            raise UsageError("the executor is closed and takes no trial any more")
        if isinstance(spec, GradeSpec):
            self._graders.submit(spec)
            return
        try:
            problem = await self._function_problem(spec)
        except asyncio.CancelledError:
            self._room.release()
            raise
        if problem:
            self._give_back(unplayed(spec, "errored", problem))
        else:
            self._players.submit(spec)

    async def results(self) -> AsyncIterator[TrialResult]:
        """Results as they come, until `close`."""
        while (result := await self._results.get()) is not None:
            yield result

    async def cancel(self) -> None:
        """Stop every trial under way; workers that do not listen are killed."""
        self.is_cancelled = True
        self._players.stop()
        self._graders.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle(), CANCEL_GRACE_S)
        for workers in (self._players, self._graders):
            workers.kill("did not stop when its run was cancelled")
        await self._idle()

    async def close(self) -> None:
        """End all workers; trials still under way end cancelled."""
        self.is_cancelled = True
        await self._players.close()
        await self._graders.close()
        self._is_closed = True
        if self._warm_pool:
            self._warm_pool.refill()
        self._results.put_nowait(None)

    async def release(self) -> None:
        """End `results` for their reader; the workers stay for the next run."""
        await self._idle()
        ended, self._results = self._results, asyncio.Queue()
        ended.put_nowait(None)

    async def _idle(self) -> None:
        await self._players.idle.wait()
        await self._graders.idle.wait()

    def _played(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        """Hand a played trial to the graders; one that did not finish has nothing to grade."""
        if result.status != "finished" or isinstance(spec, GradeSpec):
            self._give_back(result)
        elif self.is_cancelled:
            self._give_back(cancelled(spec))
        else:
            self._graders.submit(grade_spec(spec, result))

    def _graded(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        if self._check is not None and spec is self._check[0]:
            self._check[1].set_result(result.error)
        else:
            self._give_back(result)

    async def _function_problem(self, spec: TrialSpec) -> ErrorRecord | None:
        """The error of importing the user's functions: a grader is asked once, before any trial costs something."""
        from evaldesk.metrics import is_function

        if not any(map(is_function, spec.criteria)):
            return None
        if self._check is None or self._check[0].criteria != spec.criteria:
            self._check = functions_check(spec), asyncio.get_running_loop().create_future()
            self._graders.submit(self._check[0])
        return await asyncio.shield(self._check[1])  # who waits may be cancelled; the answer is for the next, too

    def _give_back(self, result: TrialResult) -> None:
        self._room.release()
        self._results.put_nowait(result)
