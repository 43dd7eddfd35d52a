"""A bench: workers that stay up while a test run hands them one case after the other; nothing is stored."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future

from evaldesk.desk.run_defaults import with_defaults
from evaldesk.desk.run_driver import trial_seed
from evaldesk.desk.run_plan import RunOptions
from evaldesk.desk.scrubbing import value_scrubber
from evaldesk.engine import LocalExecutor
from evaldesk.model import AgentRef, Case, Limits, TrialResult, TrialSpec
from evaldesk.model.recording import Recording
from evaldesk.model.user import UserConfig
from evaldesk.report.run_result import CaseResult
from evaldesk.settings import Settings


class Bench:
    """Plays cases of one agent in worker processes, from any thread; `close` ends them."""

    def __init__(self, agent: AgentRef, settings: Settings, *, concurrency: int) -> None:
        self._agent = agent
        self._settings = settings
        self._concurrency = concurrency
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[int, int], asyncio.Future[TrialResult]] = {}
        self._scrubbed: Callable[[TrialResult], TrialResult] = value_scrubber(settings.environment)
        self._loop = asyncio.new_event_loop()
        self._executor: LocalExecutor | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="evaldesk-bench", daemon=True)
        self._thread.start()

    def play(self, case: Case, options: RunOptions) -> CaseResult:
        """Play a case as often as the options say and wait for the last trial. Raises UsageError."""
        ready = with_defaults(options, self._settings, self._agent.root)
        work: Future[CaseResult] = asyncio.run_coroutine_threadsafe(self._play(case, ready), self._loop)
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

    async def _play(self, case: Case, options: RunOptions) -> CaseResult:
        executor = self._opened()
        number = next(self._numbers)
        specs = [self._spec(case, options, number, index) for index in range(options.n)]
        futures = [self._loop.create_future() for _ in specs]
        for spec, future in zip(specs, futures, strict=True):
            self._waiting[number, spec.trial_index] = future
            await executor.submit(spec)
        return CaseResult(case, tuple(self._scrubbed(result) for result in await asyncio.gather(*futures)), options.n)

    def _opened(self) -> LocalExecutor:
        if self._executor is None:
            n_workers = max(1, min(self._concurrency, os.cpu_count() or 2))
            self._executor = LocalExecutor(n_workers, self._concurrency)
            self._reading = asyncio.create_task(self._read(self._executor))
        return self._executor

    def _spec(self, case: Case, options: RunOptions, number: int, index: int) -> TrialSpec:
        return TrialSpec(
            run_id=number,
            case_index=0,
            trial_index=index,
            case=case,
            agent=self._agent,
            criteria=options.criteria,
            limits=Limits(options.timeout_s, options.turn_timeout_s, options.tool_timeout_s, options.judge_timeout_s),
            model=options.model,
            model_options=options.model_options,
            user=options.user or UserConfig(),
            recording=options.recording or Recording(),
            seed=trial_seed(options.seed or 0, case, index),
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
