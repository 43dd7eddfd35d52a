"""One event loop of a worker for frameworks whose clients must stay on one loop.

Each trial has a loop of its own (decision 003), but a client that such a framework keeps, an `httpx` pool say, is
bound to the loop that first used it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

from evaldesk.background_loop import BackgroundLoop
from evaldesk.model import Event

SendEvent: TypeAlias = Callable[[Event], Awaitable[None]]

_shared = BackgroundLoop("evaldesk-frameworks")


async def events_sent(work: Callable[[SendEvent], Coroutine[Any, Any, None]]) -> AsyncIterator[Event]:
    """Yield the events of `work`, on the shared loop, while it runs; then raise its exception.

    `work` goes on after each event only when its listener asks for the next one, so that both may change the state of
    the session. It is cancelled when the listener leaves.
    """
    shared, own = _shared.loop, asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[Event, asyncio.Future[None]] | None] = asyncio.Queue()

    async def send(event: Event) -> None:
        is_taken = shared.create_future()
        own.call_soon_threadsafe(queue.put_nowait, (event, is_taken))
        await is_taken

    def end(_: object) -> None:
        with suppress(RuntimeError):  # the trial thread's loop is closed: there is no listener
            own.call_soon_threadsafe(queue.put_nowait, None)

    running = asyncio.run_coroutine_threadsafe(work(send), shared)
    running.add_done_callback(end)
    try:
        while (item := await queue.get()) is not None:
            event, is_taken = item
            yield event
            shared.call_soon_threadsafe(_release, is_taken)
        await asyncio.wrap_future(running)
    finally:
        running.cancel()


def _release(is_taken: asyncio.Future[None]) -> None:
    if not is_taken.done():
        is_taken.set_result(None)
