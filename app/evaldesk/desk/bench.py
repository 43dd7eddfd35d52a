"""A bench: workers that stay up while a test run hands them one case after the other; nothing is stored."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from evaldesk.desk.run_driver import trial_seed
from evaldesk.desk.scrubbing import value_scrubber
from evaldesk.engine import LocalExecutor
from evaldesk.model import AgentRef, Case, Criterion, Limits, TrialResult, TrialSpec
from evaldesk.report.run_result import CaseResult


class Bench:
    """Plays cases of one agent in worker processes, from any thread; `close` ends them."""

    def __init__(self, agent: AgentRef, *, concurrency: int, timeout_s: float, model: str | None, seed: int) -> None:
        self._agent = agent
        self._concurrency = concurrency
        self._limits = Limits(trial_timeout_s=timeout_s)
        self._model = model
        self._seed = seed
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[int, int], asyncio.Future[TrialResult]] = {}
        self._scrubbed: Callable[[TrialResult], TrialResult] = value_scrubber(dict(os.environ))
        self._loop = asyncio.new_event_loop()
        self._executor: LocalExecutor | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="evaldesk-bench", daemon=True)
        self._thread.start()

    def play(self, case: Case, criteria: Sequence[Criterion], n: int) -> CaseResult:
        """Play a case n times and wait for the last trial."""
        work: Future[CaseResult] = asyncio.run_coroutine_threadsafe(self._play(case, tuple(criteria), n), self._loop)
        try:
            return work.result()
        except BaseException:
            work.cancel()
            raise

    def close(self) -> None:
        """End the workers and the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _play(self, case: Case, criteria: tuple[Criterion, ...], n: int) -> CaseResult:
        executor = self._opened()
        number = next(self._numbers)
        specs = [self._spec(case, criteria, number, index) for index in range(n)]
        futures = [self._loop.create_future() for _ in specs]
        for spec, future in zip(specs, futures, strict=True):
            self._waiting[number, spec.trial_index] = future
            await executor.submit(spec)
        return CaseResult(case, tuple(self._scrubbed(result) for result in await asyncio.gather(*futures)), n)

    def _opened(self) -> LocalExecutor:
        if self._executor is None:
            n_workers = max(1, min(self._concurrency, os.cpu_count() or 2))
            self._executor = LocalExecutor(n_workers, self._concurrency)
            self._reading = asyncio.create_task(self._read(self._executor))
        return self._executor

    def _spec(self, case: Case, criteria: tuple[Criterion, ...], number: int, index: int) -> TrialSpec:
        return TrialSpec(
            run_id=number,
            case_index=0,
            trial_index=index,
            case=case,
            agent=self._agent,
            criteria=criteria,
            limits=self._limits,
            model=self._model,
            seed=trial_seed(self._seed, case, index),
        )

    async def _read(self, executor: LocalExecutor) -> None:
        async for result in executor.results():
            future = self._waiting.pop((result.run_id, result.trial_index))
            if not future.done():
                future.set_result(result)

    async def _close(self) -> None:
        if self._executor and self._reading:
            await self._executor.close()
            await self._reading
