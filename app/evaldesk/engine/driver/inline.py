"""Trials in this very process and event loop: for tests, and for an agent or a metric that is being debugged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

from evaldesk.engine.failures import failure
from evaldesk.engine.frames import GradeSpec, cancelled, grader_result, sent_to_grader, unplayed
from evaldesk.engine.worker.attempt import Attempt, Pause, active
from evaldesk.engine.worker.jobs import run_grader, run_trial
from evaldesk.model import TrialResult, TrialSpec
from evaldesk.model.run import Place


class InlineExecutor:
    """Plays in the caller's loop: an agent that blocks blocks the caller, and no timeout can end it."""

    def __init__(self, concurrency: int = 4) -> None:
        self.is_cancelled = False
        self.end_reason = ""
        self._room = asyncio.Semaphore(concurrency)
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()
        self._jobs: set[asyncio.Task[None]] = set()
        self._attempts: dict[asyncio.Task[TrialResult], Attempt] = {}

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """The reasons why trials under way wait."""
        return active(attempt.pause for attempt in self._attempts.values())

    @property
    def places(self) -> tuple[Place, ...]:
        """None beside the caller's process."""
        return ()

    @property
    def grading_changes(self) -> tuple[str, ...]:
        """No changes: the caller imported the code that plays and scores here."""
        return ()

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Begin the trial once fewer than `concurrency` are under way."""
        await self._room.acquire()
        job = asyncio.create_task(self._carry_out(spec))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def results(self) -> AsyncIterator[TrialResult]:
        """Results as they come, until `close`."""
        while (result := await self._results.get()) is not None:
            yield result

    async def cancel(self) -> None:
        """Cancel every trial under way."""
        self.is_cancelled = True
        for task, attempt in self._attempts.items():
            _stop(task, attempt, "cancelled")
        if self._jobs:
            await asyncio.wait(self._jobs)

    async def close(self) -> None:
        """Cancel the remaining trials and end `results`."""
        await self.cancel()
        self._results.put_nowait(None)

    async def _carry_out(self, spec: TrialSpec | GradeSpec) -> None:
        try:
            result = await self._result(spec)
        except Exception as error:  # of our own code: without a result the run would wait for ever
            result = unplayed(spec, "errored", failure(error, "engine"))
        self._room.release()
        self._results.put_nowait(result)

    async def _result(self, spec: TrialSpec | GradeSpec) -> TrialResult:
        if self.is_cancelled:
            return cancelled(spec)
        if isinstance(spec, GradeSpec):
            return grader_result(spec, await run_grader(sent_to_grader(spec), Attempt()))
        return await self._play(spec)

    async def _play(self, spec: TrialSpec) -> TrialResult:
        attempt = Attempt()
        task = asyncio.create_task(run_trial(spec, attempt))
        timeout_s = spec.limits.trial_timeout_s
        timer = asyncio.get_running_loop().call_later(timeout_s, _stop, task, attempt, "timed_out")
        self._attempts[task] = attempt
        try:
            return await task
        except asyncio.CancelledError:
            return cancelled(spec)  # before it began
        finally:
            timer.cancel()
            del self._attempts[task]


def _stop(task: asyncio.Task[TrialResult], attempt: Attempt, reason: Literal["timed_out", "cancelled"]) -> None:
    attempt.stop = attempt.stop or reason
    task.cancel()
