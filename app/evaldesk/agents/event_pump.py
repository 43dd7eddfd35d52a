"""A stream of events from a coroutine that sends them by a callback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

from evaldesk.model import Event

SendEvent: TypeAlias = Callable[[Event], None]


async def events_of(work: Callable[[SendEvent], Coroutine[Any, Any, None]]) -> AsyncGenerator[Event, None]:
    """Yield the events of `work` while it runs, then raise its exception. Closing the generator cancels `work`.

    `work` may send events from other threads.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def send(event: Event | None) -> None:
        if _is_in(loop):
            queue.put_nowait(event)
        else:
            loop.call_soon_threadsafe(queue.put_nowait, event)

    task = asyncio.create_task(work(send))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        with suppress(BaseException):
            await task


def _is_in(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
