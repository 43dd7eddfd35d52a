"""The time limit of a tool, for frameworks that call their tools themselves."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, TypeVar

from evaldesk.agents.in_thread import run_in_thread
from evaldesk.backports import timeout

T = TypeVar("T")

TOOL_LIMIT: ContextVar[float | None] = ContextVar("tool_limit", default=None)
"""Time limit of a tool call in the current turn, in seconds; None for no limit."""


class ToolFailedError(Exception):
    """A failed tool call; the text is for the model."""


class ToolLateError(ToolFailedError):
    """A tool call that exceeded its time limit."""


async def call_in_time(name: str, call: Callable[[], Awaitable[T]]) -> T:
    """The result of `call` of the tool. Raises ToolLateError when it takes longer than the limit of the turn."""
    limit = TOOL_LIMIT.get()
    time_limit = timeout(limit)
    try:
        async with time_limit:
            return await call()
    except TimeoutError as error:
        if not time_limit.expired():
            raise
        raise ToolLateError(f"{name}: not finished within {limit:g} s") from error


def in_thread_if_sync(function: Callable[..., Any]) -> Callable[..., Any]:
    """A version of the function that can time out: a synchronous one runs in a thread, abandoned at the limit."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return function
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return function

    @wraps(function)
    async def threaded(*args: Any, **kwargs: Any) -> Any:
        result = await run_in_thread(partial(function, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    return threaded
