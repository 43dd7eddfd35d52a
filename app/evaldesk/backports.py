"""Names that Python 3.11 brought and the modules of a player need on Python 3.10."""

from __future__ import annotations

import asyncio
import enum
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timezone
from types import TracebackType

__all__ = ["UTC", "StrEnum", "chdir", "timeout"]

UTC = timezone.utc  # noqa: UP017

if sys.version_info >= (3, 11):  # noqa: UP036
    from asyncio import timeout
    from contextlib import chdir
    from enum import StrEnum
else:

    class StrEnum(str, enum.Enum):  # noqa: UP042
        """Members that are texts."""

        __str__ = str.__str__
        __format__ = str.__format__

    @contextmanager
    def chdir(folder: str | os.PathLike[str]) -> Iterator[None]:
        """Let the process work in `folder` meanwhile."""
        before = os.getcwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)

    class timeout:  # noqa: N801
        """As `asyncio.timeout`: the block is cancelled after `delay` seconds, which raises TimeoutError."""

        def __init__(self, delay: float | None) -> None:
            self._delay = delay
            self._has_expired = False
            self._timer: asyncio.TimerHandle | None = None

        def expired(self) -> bool:
            """Whether the time was over before the block was."""
            return self._has_expired

        async def __aenter__(self) -> timeout:
            self._task = asyncio.current_task()
            if self._delay is not None:
                self._timer = asyncio.get_running_loop().call_later(self._delay, self._expire)
            return self

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            if self._timer:
                self._timer.cancel()
            if self._has_expired and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error

        def _expire(self) -> None:
            self._has_expired = True
            if self._task:
                self._task.cancel()
