"""Trials in worker processes: of this machine, of another interpreter or of a container."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from evaldesk.engine.frames import GradeSpec, cancelled, grade_spec, unplayed
from evaldesk.engine.host.process import WarmPool, WorkerProcess
from evaldesk.engine.host.worker_set import WorkerSet
from evaldesk.engine.launch import OWN, Launcher
from evaldesk.engine.worker.attempt import Pause, active
from evaldesk.errors import UsageError
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec, trial_verdict
from evaldesk.model.run import Place

CANCEL_GRACE_S = 4.0
GRADED_AT_ONCE = 8
PATIENCE_S = 0.2
"""How long a grader with work may answer nothing before another is started, which takes about as long."""


class LocalExecutor:
    """Carries out up to `concurrency` trials at once, in `n_workers` players and as many graders.

    A player has the agent and the user's side of a case; a grader has the expectations and the metrics, and never the
    agent. The process of this executor hands the transcript from one to the other, and checks what both answer. Players
    come to be by `launcher`, graders always on Evaldesk's own interpreter. `players` are up already and belong to this
    executor from now on. Where `is_shared` is false each trial has a player of its own, up to `concurrency` of them.
    """

    def __init__(
        self,
        n_workers: int = 2,
        concurrency: int = 4,
        *,
        environment: Mapping[str, str] | None = None,
        warm_pool: WarmPool | None = None,
        launcher: Launcher = OWN,
        players: Sequence[WorkerProcess] = (),
        is_shared: bool = True,
    ) -> None:
        self.is_cancelled = False
        self.end_reason = ""
        self._warm_pool = warm_pool
        workers = partial(
            WorkerSet, concurrency=concurrency, environment=os.environ if environment is None else environment
        )
        self._players = workers(
            n_workers if is_shared else concurrency,
            on_result=self._played,
            warm_pool=warm_pool if launcher is OWN else None,
            purpose="player",
            launcher=launcher,
            ready=players,
            is_shared=is_shared,
        )
        self._graders = workers(
            n_workers,
            on_result=self._graded,
            warm_pool=warm_pool,
            purpose="grader",
            n_before_next=GRADED_AT_ONCE,
            patience_s=PATIENCE_S,
        )
        self._room = asyncio.Semaphore(concurrency)
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()
        self._check: tuple[GradeSpec, asyncio.Future[ErrorRecord | None]] | None = None
        self._is_closed = False

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the players and graders that are up."""
        return [*self._players.pids, *self._graders.pids]

    @property
    def zygote_pid(self) -> int:
        """Process id of the player that is forked for the others; 0 where there is none."""
        return self._players.zygote_pid

    @property
    def unforked(self) -> str:
        """Why the players are no forks, in words; empty where they are, or where that was not tried."""
        return self._players.unforked

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """The reasons why trials under way wait."""
        return active([*self._players.pauses, *self._graders.pauses])

    @property
    def places(self) -> tuple[Place, ...]:
        """This machine, with the players that are up."""
        return (self._players.place,)

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial once fewer than `concurrency` are under way. Raises UsageError after `close`."""
        await self._room.acquire()
        if self._is_closed:
            raise UsageError("the executor is closed and takes no trial any more")
        if isinstance(spec, GradeSpec):
            self._graders.submit(spec)
            return
        try:
            problem = await self._function_problem(spec)
        except asyncio.CancelledError:
            self._room.release()
            raise
        if problem:
            self._give_back(unplayed(spec, "errored", problem))
            return
        self._players.submit(spec)
        if spec.criteria:
            self._graders.prepare()

    async def results(self) -> AsyncIterator[TrialResult]:
        """Results as they come, until `close`."""
        while (result := await self._results.get()) is not None:
            yield result

    async def cancel(self) -> None:
        """Stop every trial under way; workers that do not listen are killed."""
        self.is_cancelled = True
        self._players.stop()
        self._graders.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle(), CANCEL_GRACE_S)
        for workers in (self._players, self._graders):
            workers.kill("did not stop when its run was cancelled")
        await self._idle()

    async def close(self) -> None:
        """End all workers; trials still under way end cancelled."""
        self.is_cancelled = self._players.is_cancelled = self._graders.is_cancelled = True
        await asyncio.gather(self._players.close(), self._graders.close())
        self._is_closed = True
        if self._warm_pool:
            self._warm_pool.refill()
        self._results.put_nowait(None)

    async def release(self) -> None:
        """End `results` for their reader; the workers stay for the next run."""
        await self._idle()
        ended, self._results = self._results, asyncio.Queue()
        ended.put_nowait(None)

    async def _idle(self) -> None:
        await self._players.idle.wait()
        await self._graders.idle.wait()

    def _played(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        """Hand a played trial to the graders; one that did not finish has nothing to grade."""
        if result.status != "finished" or isinstance(spec, GradeSpec):
            self._give_back(result)
        elif self.is_cancelled:
            self._give_back(cancelled(spec))
        elif not spec.criteria:
            self._give_back(replace(result, verdict=trial_verdict((), (), result.error)))
        else:
            self._graders.submit(grade_spec(spec, result))

    def _graded(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        if self._check is not None and spec is self._check[0]:
            self._check[1].set_result(result.error)
        else:
            self._give_back(result)

    async def _function_problem(self, spec: TrialSpec) -> ErrorRecord | None:
        """The error of importing the user's functions: a grader is asked once, before any trial costs something."""
        from evaldesk.metrics import is_function

        if not any(map(is_function, spec.criteria)):
            return None
        if self._check is None or self._check[0].criteria != spec.criteria:
            unscored = grade_spec(spec, cancelled(spec))  # of it a grader only imports the functions
            self._check = unscored, asyncio.get_running_loop().create_future()
            self._graders.submit(self._check[0])
        return await asyncio.shield(self._check[1])  # who waits may be cancelled; the answer is for the next, too

    def _give_back(self, result: TrialResult) -> None:
        self._room.release()
        self._results.put_nowait(result)
