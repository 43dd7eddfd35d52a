"""The one thread in which runs are written, and its retries on a full disk."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from evaldesk.errors import WorkspaceError

log = logging.getLogger("evaldesk.runs")

RETRY_S = 2.0
T = TypeVar("T")


class RunWriter:
    """Writes one thing after the other; `patience_s` bounds the retries, without end by default."""

    def __init__(self) -> None:
        self.patience_s = math.inf
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaldesk-writer")
        self._refused_since: float | None = None

    async def write(self, call: Callable[..., T], *args: object, **options: object) -> T:
        """Carry out `call` in the thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, functools.partial(call, *args, **options))

    async def write_with_retry(
        self, call: Callable[..., T], *args: object, on_refusal: Callable[[Exception], None] = lambda _: None
    ) -> T:
        """As `write`, but go on trying while the disk or the database says no: finished trials are never dropped.

        Raises WorkspaceError after the last retry; the next write is then tried once.
        """
        while True:
            try:
                done = await self.write(call, *args)
            except (WorkspaceError, OSError) as error:
                self._note_failure(error)
                on_refusal(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._refused_since = None
                return done

    async def close(self) -> None:
        """End the thread after its present write."""
        await asyncio.to_thread(self._thread.shutdown)

    def _note_failure(self, error: Exception) -> None:
        now = time.monotonic()
        if self._refused_since is None:
            log.warning("runs cannot be stored, which is tried again: %s", error)
            self._refused_since = now
        if now - self._refused_since >= self.patience_s:
            waited = f"given up after {self.patience_s / 60:.0f} min"
            raise WorkspaceError(f"{error}; {waited}: make room, then resume the run") from error
