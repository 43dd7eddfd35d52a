"""Ctrl-C while a run is played in the shell."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from evaldesk.cli.eval.playing import EXIT_INTERRUPTED, Interruption


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
