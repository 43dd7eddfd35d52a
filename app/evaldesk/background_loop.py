"""An event loop in a thread of its own, for clients that must stay on one loop while each trial has its own."""

from __future__ import annotations

import asyncio
import threading
from functools import cached_property


class BackgroundLoop:
    """One loop for the process, started when it is first asked for; its thread ends with the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Two threads that ask first must not start two loops (decision 003).
        self._lock = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            return self._running_loop

    @cached_property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name=self._name, daemon=True).start()
        return loop


def is_in_loop() -> bool:
    """Whether the caller runs in an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
