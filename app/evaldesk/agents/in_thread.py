"""Run blocking code in a thread, outside of the turn's event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

JOIN_S = 5.0

T = TypeVar("T")


async def run_in_thread(call: Callable[[], T], on_cancel: Callable[[], None] | None = None) -> T:
    """The result of `call` in a daemon thread of its own, in the context of the caller.

    On cancellation `on_cancel` must make the thread return. A thread that does not return blocks the turn's own thread
    for JOIN_S, so that the player sees a stuck turn. Without `on_cancel` the thread is abandoned.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(call))
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="evaldesk-user-code", daemon=True)
    thread.start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if on_cancel:
            on_cancel()
            thread.join(JOIN_S)
        raise
