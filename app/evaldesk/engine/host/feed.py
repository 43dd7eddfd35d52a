"""Hands trials to an executor, never more than a number at once, and passes their results on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing

from evaldesk.engine.frames import GradeSpec
from evaldesk.engine.host.executors import Executor
from evaldesk.model import TrialResult, TrialSpec


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
    """As `drive`, for specs that have to be read first; gives together what ended meanwhile, to be stored together.

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
        spec = await anext(self._specs, None)
        if spec is None:
            return False
        await self._executor.submit(spec)
        return True


async def _each(specs: Iterable[TrialSpec | GradeSpec]) -> AsyncGenerator[TrialSpec | GradeSpec]:
    for spec in specs:
        yield spec
