"""Workers that wait for a run with everything imported, so that its first trial does not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from evaldesk.engine.host.process import Answer, Death, Purpose, WorkerProcess, WorkerStartError


class WarmPool:
    """Up to `n` idle workers, started one after the other: a desk that has just opened has other things to do."""

    def __init__(self, n: int, *, environment: Mapping[str, str] | None = None) -> None:
        self._n = n
        self._environment = os.environ if environment is None else environment
        self._idle: list[WorkerProcess] = []
        self._filling: asyncio.Task[None] | None = None
        self._purpose: Purpose = "trials"

    def fill(self, purpose: Purpose) -> None:
        """Start what is missing, in the background."""
        self._purpose = purpose
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill())

    def take(self, on_answer: Callable[[Answer], None], on_death: Callable[[Death], None]) -> WorkerProcess | None:
        """A worker that is ready, from now on the caller's; None when there is none."""
        if not self._idle:
            return None
        worker = self._idle.pop()
        worker.hand_over(on_answer, on_death)
        return worker

    def refill(self) -> None:
        """As `fill`, for the same purpose as before; nothing when `fill` was never called."""
        if self._filling is not None:
            self.fill(self._purpose)

    async def close(self) -> None:
        """End them all."""
        if self._filling:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        self._filling = None
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.close() for worker in idle))

    async def _fill(self) -> None:
        while len(self._idle) < self._n:
            worker = WorkerProcess(_ignore, lambda _: None)
            worker.hand_over(_ignore, lambda _, worker=worker: self._lost(worker))  # type: ignore[misc]
            try:
                await worker.start(self._environment, self._purpose)
            except WorkerStartError:
                return  # a run that needs a worker will start one, and say what is wrong
            self._idle.append(worker)

    def _lost(self, worker: WorkerProcess) -> None:
        if worker in self._idle:
            self._idle.remove(worker)


def _ignore(_: Answer) -> None:
    """An idle worker has nothing to answer."""
