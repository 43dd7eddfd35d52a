"""Ways to carry out trials: each takes specs and gives back one result for every one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from evaldesk.engine.frames import GradeSpec
from evaldesk.model import TrialResult, TrialSpec


class Executor(Protocol):
    """Carries out trials. Every spec that was submitted has exactly one result, whatever happens to it.

    One that knows what the models of its trials wait for says so by `pauses`, a sequence of Pause.
    """

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called: what is submitted from now on ends cancelled."""

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial to play and grade, or a played one to grade again; waits for room."""

    def results(self) -> AsyncIterator[TrialResult]:
        """Results in the order in which they come, until `close`; for one reader."""

    async def cancel(self) -> None:
        """End all trials under way as cancelled; returns when they have ended."""

    async def close(self) -> None:
        """Give back threads and processes; trials still under way end cancelled."""
