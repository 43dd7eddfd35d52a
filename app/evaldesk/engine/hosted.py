"""An agent's warm worker: asks it things, and gives every answer to the one who asked."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping
from typing import TypeAlias

from evaldesk.engine.frames import Describe, Happened, Stop, Talk
from evaldesk.engine.process import Answer, Death, WorkerProcess

Item: TypeAlias = Answer | Death

STOP_GRACE_S = 3.0

_keys = itertools.count(1)


def next_key() -> int:
    """A key that no other question has."""
    return next(_keys)


class HostedAgent:
    """One worker for one agent as its files were when it started (`version`)."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.is_retired = False
        self._worker = WorkerProcess(self._on_answer, self._on_death)
        self._questions: dict[int, asyncio.Queue[Item]] = {}

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._worker.pid

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._questions

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start the worker. Raises WorkerStartError."""
        await self._worker.start(environment)

    async def ask(self, frame: Describe | Talk, timeout_s: float) -> AsyncGenerator[Item, None]:
        """The answers to `frame` as they come; the last is no Happened. Leaving early stops the work."""
        queue = self._questions[frame.key] = asyncio.Queue()
        item: Item | None = None
        try:
            self._worker.send(frame, timeout_s)
            while item is None or isinstance(item, Happened):
                item = await queue.get()
                yield item
        finally:
            try:
                if item is None or isinstance(item, Happened):
                    self.stop(frame.key)
                while item is None or isinstance(item, Happened):
                    item = await queue.get()
            finally:  # who is cancelled twice does not wait for the end, and must not look busy for ever
                del self._questions[frame.key]

    def stop(self, key: int) -> None:
        """End the turn of that key; a worker that does not listen is killed."""
        self._worker.send(Stop(key))
        asyncio.get_running_loop().call_later(STOP_GRACE_S, self._kill_if_asked, key)

    async def close(self) -> None:
        """End the worker; who still waits for it is told."""
        await self._worker.close()
        self._on_death(Death("the worker process was closed", ""))

    def _kill_if_asked(self, key: int) -> None:
        if key in self._questions:
            self._worker.kill("did not stop when it was told to")

    def _on_answer(self, frame: Answer) -> None:
        if getattr(frame, "is_tainted", False):
            self.is_retired = True
        queue = self._questions.get(frame.key)
        if queue:
            queue.put_nowait(frame)

    def _on_death(self, death: Death) -> None:
        self.is_retired = True
        for queue in self._questions.values():
            queue.put_nowait(death)
