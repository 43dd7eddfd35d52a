"""One event loop per worker, for frameworks with clients that are bound to a loop.

Each trial has a loop of its own (decision 003), but a long-lived client of a framework, such as an `httpx` pool, is
bound to the loop of its first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from evaldesk.background_loop import BackgroundLoop
from evaldesk.model import Event

SendEvent: TypeAlias = Callable[[Event], Awaitable[None]]
T = TypeVar("T")

_shared_loop = BackgroundLoop("evaldesk-frameworks")


class OnSharedLoop:
    """An agent that is played on the shared loop; its code must open its connections there."""

    __slots__ = ()


async def on_shared_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the shared loop, and return its result."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _shared_loop.loop))


class EventStream(AsyncIterator[Event]):
    """The events of `work`, run on the shared loop, and cancelled when the listener leaves.

    `work` continues only after the listener took an event, so that both may change the state of the session.
    """

    def __init__(self, work: Callable[[SendEvent], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._generator: AsyncGenerator[Event, None] | None = None

    async def consume(self, take: Callable[[Event], bool]) -> bool:
        """Pass each event to `take`, on the shared loop, until it returns True; returns whether it did.

        Exceptions of `take` and `work` pass through and end it. Faster than iteration from another loop, with its two
        thread switches for each event. (decision 013)
        """
        shared_loop, own_loop = _shared_loop.loop, asyncio.get_running_loop()
        over: asyncio.Future[bool] = own_loop.create_future()
        # The trial's thread must not read a turn while the shared loop adds to it: decision 013.
        lock, is_left = Lock(), False
        task: asyncio.Task[None] | None = None

        def end(is_enough: bool, error: BaseException | None = None) -> None:
            with suppress(RuntimeError):  # the trial thread's loop is closed: there is no listener
                own_loop.call_soon_threadsafe(_settle, over, is_enough, error)

        async def send(event: Event) -> None:
            try:
                with lock:
                    is_enough = is_left or take(event)
            except Exception as error:  # raised here, it would be for the framework
                end(True, error)
            else:
                if not is_enough:
                    return
                end(True)
            await shared_loop.create_future()  # until the listener has left

        work = self._work(send)

        def begin() -> None:
            nonlocal task
            task = shared_loop.create_task(work)
            task.add_done_callback(lambda ended_task: end(False, _error_of(ended_task)))

        def leave() -> None:
            if task:
                task.cancel()

        shared_loop.call_soon_threadsafe(begin)
        try:
            return await over
        finally:
            with lock:
                is_left = True
            if not (task and task.done()):
                shared_loop.call_soon_threadsafe(leave)

    async def __anext__(self) -> Event:
        """The next event, in the loop of the listener."""
        self._generator = self._generator or self._generate()
        return await anext(self._generator)

    async def aclose(self) -> None:
        """Stop listening, and cancel `work`."""
        if self._generator:
            await self._generator.aclose()

    async def _generate(self) -> AsyncGenerator[Event, None]:
        shared_loop, own_loop = _shared_loop.loop, asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[Event, asyncio.Future[None]] | None] = asyncio.Queue()

        async def send(event: Event) -> None:
            is_taken = shared_loop.create_future()
            own_loop.call_soon_threadsafe(queue.put_nowait, (event, is_taken))
            await is_taken

        def end(_: object) -> None:
            with suppress(RuntimeError):  # the trial thread's loop is closed: there is no listener
                own_loop.call_soon_threadsafe(queue.put_nowait, None)

        future = asyncio.run_coroutine_threadsafe(self._work(send), shared_loop)
        future.add_done_callback(end)
        try:
            while (item := await queue.get()) is not None:
                event, is_taken = item
                yield event
                shared_loop.call_soon_threadsafe(_release, is_taken)
            await asyncio.wrap_future(future)
        finally:
            future.cancel()


def _settle(over: asyncio.Future[bool], is_enough: bool, error: BaseException | None) -> None:
    if over.done():
        return
    if isinstance(error, asyncio.CancelledError):
        over.cancel()
    elif error:
        over.set_exception(error)
    else:
        over.set_result(is_enough)


def _error_of(task: asyncio.Future[None]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _release(is_taken: asyncio.Future[None]) -> None:
    if not is_taken.done():
        is_taken.set_result(None)
