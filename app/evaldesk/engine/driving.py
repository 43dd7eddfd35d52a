"""Hands trials to an executor, never more than a number at once, and passes their results on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from evaldesk.engine.executors import Executor
from evaldesk.engine.frames import GradeSpec
from evaldesk.model import TrialResult, TrialSpec


async def drive(
    specs: Iterable[TrialSpec | GradeSpec], executor: Executor, concurrency: int
) -> AsyncGenerator[TrialResult]:
    """One result for every spec that was handed out, in the order in which they end.

    A pool, not waves: the next trial begins when one ends, also while the caller is busy with a result. Once the
    executor is cancelled nothing more is handed out.
    """
    async with aclosing(drive_batches(specs, executor, concurrency)) as batches:
        async for batch in batches:
            for result in batch:
                yield result


async def drive_batches(
    specs: Iterable[TrialSpec | GradeSpec], executor: Executor, concurrency: int
) -> AsyncGenerator[list[TrialResult]]:
    """As `drive`, but all results that are there at once: at least one, to be stored in one transaction."""
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
    def __init__(self, specs: Iterable[TrialSpec | GradeSpec], executor: Executor, concurrency: int) -> None:
        self._specs = iter(specs)
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
                if ended is None:
                    return  # the executor was closed
                self._ended.append(ended)
                n_under_way -= 1
                self._has_news.set()
        finally:
            self._has_news.set()

    async def take(self, task: asyncio.Task[None]) -> list[TrialResult]:
        """What ended since the last call; waits for at least one, empty when all is done."""
        while not self._ended and not task.done():
            self._has_news.clear()
            await self._has_news.wait()
        batch, self._ended = self._ended, []
        return batch

    async def _hand_out(self) -> bool:
        if self._executor.is_cancelled:
            return False
        spec = next(self._specs, None)
        if spec is None:
            return False
        await self._executor.submit(spec)
        return True
