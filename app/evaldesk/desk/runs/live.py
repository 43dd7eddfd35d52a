"""The ticks that watchers of a running run share: one for all of them, at most four a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment of a run. `memo` is where watchers of the same tick share expensive values."""

    number: int
    is_last: bool = False
    memo: dict[object, object] = field(default_factory=dict)


class LiveRun:
    """Turns many changes into few ticks, and wakes every watcher at each."""

    def __init__(self) -> None:
        self.tick = Tick(0)
        self._is_dirty = asyncio.Event()
        self._moved = asyncio.Condition()

    def touch(self) -> None:
        """Something changed."""
        self._is_dirty.set()

    async def beat(self) -> None:
        """Tick while there are changes; runs as a task beside the driver."""
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            await self._move(is_last=False)
            await asyncio.sleep(TICK_S)

    async def end(self) -> None:
        """The last tick: the run is over, and its watchers leave."""
        await self._move(is_last=True)

    async def ticks(self) -> AsyncIterator[Tick]:
        """The present moment at once, then every later one; slow watchers skip."""
        seen = self.tick
        yield seen
        while not seen.is_last:
            async with self._moved:
                await self._moved.wait_for(lambda seen=seen: self.tick is not seen)  # type: ignore[misc]
            seen = self.tick
            yield seen

    async def _move(self, *, is_last: bool) -> None:
        async with self._moved:
            self.tick = Tick(self.tick.number + 1, is_last)
            self._moved.notify_all()
