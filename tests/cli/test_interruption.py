"""Ctrl-C while a run is played in the shell."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import pytest

from evaldesk.cli.eval.playing import EXIT_INTERRUPTED, Interruption
from evaldesk.errors import WorkspaceError


class StuckRuns:
    """Runs that cannot be stopped: the disk is full, and their state cannot be stored."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def stop(self, run_id: int, *, cancel: bool) -> None:
        self.asked.append(cancel)
        await asyncio.Event().wait()


def test_the_third_ends_what_waits_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)

    async def pressed(times: int) -> list[bool]:
        runs: Any = StuckRuns()
        interruption = Interruption(runs, lambda line: None)
        interruption.run_id = 1
        for _ in range(times):
            interruption()
            await asyncio.sleep(0)
        return list(runs.asked)

    assert (asyncio.run(pressed(2)), ended) == ([False, True], [])

    asyncio.run(pressed(3))

    assert ended == [EXIT_INTERRUPTED]


def test_a_stop_that_a_full_disk_does_not_store_says_so_and_how_to_end_without_it() -> None:
    said: list[str] = []

    class RefusedRuns:
        async def stop(self, run_id: int, *, cancel: bool) -> None:
            raise WorkspaceError("the disk is full")

    async def pressed(times: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(str(context)))
        runs: Any = RefusedRuns()
        interruption = Interruption(runs, said.append)
        interruption.run_id = 1
        for _ in range(times):
            interruption()
            await asyncio.sleep(0)
        gc.collect()  # a task whose exception nobody took says so now

    asyncio.run(pressed(2))

    assert said == [
        "Finishing the running trials; press Ctrl-C again to stop at once",
        "Stopped, but not stored: the disk is full; press Ctrl-C twice more to end without what is not stored",
        "Stopping",
        "Stopped, but not stored: the disk is full; press Ctrl-C again to end without what is not stored",
    ]
