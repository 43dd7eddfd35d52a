"""A thread for a call that may never come back; nobody waits for it at the end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """What `call` gives in a daemon thread of its own, in the context of the caller."""
    given: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not given.set_running_or_notify_cancel():
            return
        try:
            given.set_result(context.run(call))
        except BaseException as error:
            given.set_exception(error)

    threading.Thread(target=run, name="evaldesk-tool", daemon=True).start()
    return await asyncio.wrap_future(given)
