"""User code that may be plain or async, called by the names of its parameters, without blocking the turn."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

JOIN_S = 5.0


async def called(function: Callable[..., Any], arguments: Mapping[str, Any], on_cancel: Callable[[], None]) -> Any:
    """The result of the function: a coroutine function runs here, a plain one in a thread of its own.

    When the turn is cancelled, `on_cancel` is to make the thread come back; a thread that does not come back blocks the
    turn's own thread for a while, so that the player of the turn sees that it is stuck.
    """
    given = _taken(function, arguments)
    if inspect.iscoroutinefunction(function):
        try:
            return await function(**given)
        except asyncio.CancelledError:
            on_cancel()
            raise
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()

    def deliver(value: Any, error: BaseException | None) -> None:
        if not done.cancelled():
            done.set_exception(error) if error else done.set_result(value)

    def work() -> None:
        try:
            value, error = context.run(function, **given), None
        except BaseException as raised:
            value, error = None, raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, value, error)

    thread = threading.Thread(target=work, name="evaldesk-user-code", daemon=True)
    thread.start()
    try:
        found = await done
    except asyncio.CancelledError:
        on_cancel()
        thread.join(JOIN_S)
        raise
    return await found if inspect.isawaitable(found) else found


def _taken(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the function's own names: those it knows, else the first ones in their order."""
    names = list(inspect.signature(function).parameters)
    if all(name in names for name in arguments):
        return dict(arguments)
    return dict(zip(names, arguments.values(), strict=False))


T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """The result of `call` in a daemon thread of its own, in the context of the caller."""
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
