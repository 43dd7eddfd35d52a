"""Context variables around model calls, and coroutines inside of functions that block."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def context_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable inside the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of the coroutine, for a caller that blocks its thread, which may run a loop of its own."""
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="evaldesk-answers") as pool:
        return pool.submit(context.run, asyncio.run, coroutine).result()
