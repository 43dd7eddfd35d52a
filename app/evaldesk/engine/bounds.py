"""The time limit of one turn within that of its trial."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from evaldesk.engine.attempt import Attempt

GRACE_S = 1.0


@contextmanager
def turn_bound(attempt: Attempt, timeout_s: float | None) -> Iterator[None]:
    """Let what is done inside take at most `timeout_s`: then the attempt is stopped and its task cancelled.

    An agent that blocks its loop is given up GRACE_S later by whoever watches the attempt's deadline.
    """
    task = asyncio.current_task()
    if timeout_s is None or task is None or timeout_s >= attempt.seconds_left:
        yield
        return
    whole = attempt.deadline, attempt.timeout_s

    def stop() -> None:
        attempt.stop = attempt.stop or "timed_out"
        task.cancel()

    attempt.deadline, attempt.timeout_s = attempt.clock() + timeout_s + GRACE_S, timeout_s
    timer = asyncio.get_running_loop().call_later(timeout_s, stop)
    try:
        yield
    finally:
        timer.cancel()
        attempt.deadline = whole[0]
        if not attempt.stop:
            attempt.timeout_s = whole[1]
