"""A bench: workers that stay up while a test run hands them one case after the other; nothing is stored."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from evaldesk.desk.other_tools import as_tool_judges
from evaldesk.desk.runs.driver import trial_spec
from evaldesk.desk.runs.fresh_trials import repeats_recorded, without_fresh_trials
from evaldesk.desk.runs.gates.bars import bars_of, is_asserted, weaker_words
from evaldesk.desk.runs.model_checks import check_model_names, check_models
from evaldesk.desk.runs.plan import (
    RunOptions,
    RunPlan,
    apply_options,
    check_pinned,
    check_reviewed,
    checked_criteria_of_case,
    recordings_folder,
    with_defaults,
    with_executor,
)
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.desk.runs.sandboxing import launcher_of_run
from evaldesk.engine import ChatPlayers, Executor, LocalExecutor
from evaldesk.engine.driver.code_files import version_of
from evaldesk.engine.driver.worker_process import WorkerProcess
from evaldesk.engine.executors import check_place, open_executor
from evaldesk.engine.launch import launcher_of
from evaldesk.errors import EvaldeskError
from evaldesk.matching.case_version import case_version
from evaldesk.model import AgentDescription, AgentRef, Case, Criterion, Gates, RunConfig, TrialResult
from evaldesk.model.comparison import Baseline, PlayedCase, RunChange, match_cases
from evaldesk.model.evalset import CaseKey, assertions
from evaldesk.model.options import Recording
from evaldesk.settings import Settings
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.wire import result_scrubber


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """A case that was played `n` times, with its change against a baseline that accounts for it."""

    case: Case
    options: RunOptions
    n: int
    change: RunChange


class CasePlayer:
    """Plays cases of one agent in worker processes, from any thread; `close` ends them."""

    def __init__(self, agent: AgentRef, settings: Settings, *, concurrency: int) -> None:
        self._agent = agent
        self._settings = settings
        self._concurrency = concurrency
        self._numbers = itertools.count(1)
        self._futures: dict[tuple[int, int], asyncio.Future[TrialResult]] = {}
        self._scrubbed = result_scrubber(settings.environment)
        self._loop = asyncio.new_event_loop()
        self._executor: Executor | None = None
        self._description: AgentDescription | None = None
        self._model_faults: dict[str, str] = {}
        self._ready: WorkerProcess | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="evaldesk-bench", daemon=True)
        self._thread.start()

    def check(self, case: Case, options: RunOptions) -> None:
        """Raise UsageError for a model of the run that has no name or no key, AgentError for an agent that fails."""
        check_reviewed((case,))
        check_pinned((case,), self._agent)
        plan = RunPlan(self._config(case, options), (case,))
        if not plan.config.is_strict:
            checked_criteria_of_case(case, plan.config.criteria)
        asyncio.run_coroutine_threadsafe(self._check(plan), self._loop).result()

    def play(self, case: Case, options: RunOptions, first: int = 0) -> CaseResult:
        """Play a case as often as the options say and wait for the last trial; `first` is the index of the first.

        Raises UsageError, and EvaldeskError once the executor takes no more trials, as when its cluster is gone.
        """
        config = self._config(case, options)
        work: Future[CaseResult] = asyncio.run_coroutine_threadsafe(self._play(case, config, first), self._loop)
        try:
            return work.result()
        except BaseException:
            work.cancel()
            raise

    def criteria(self, case: Case, options: RunOptions) -> tuple[Criterion, ...]:
        """The criteria by which a case is judged. Raises UsageError."""
        return self._config(case, options).criteria

    def change(
        self, case: Case, evalset: str, options: RunOptions, result: CaseResult, baseline: Baseline, gates: Gates
    ) -> RunChange | None:
        """The change of a case that was played against a baseline; None where the baseline has not got the case.

        By the rule "confirm" a case that seems to have regressed is played again here. By the history, the other cases
        of the baseline count among those that could be worse; together they are judged by `change_together`.
        """
        key = CaseKey(evalset, case.id, 0, case_version(case))
        alike = [each for each in baseline.cases if each.key.case_id == case.id]
        baseline_case = match_cases(alike, [key]).get(key.place)
        if baseline_case is None:
            return None
        ready = self._config(case, options)
        played_case = PlayedCase(
            key,
            result.letters,
            ready.pass_threshold,
            ready.errors_are_failures,
            assertions(case),
        )
        others = [each.past for each in baseline.cases if each is not baseline_case and each.scored_letters]
        compare = partial(
            compare_cases,
            baseline.name,
            [baseline_case],
            rule=gates.regression_rule,
            confirm=gates.confirm,
            days=baseline.days,
            is_replayed=repeats_recorded(ready),
            others=others,
        )
        change = compare([played_case])
        bars = {evalset: bars_of(ready.criteria)}
        change = replace(change, weaker=weaker_words(change, baseline, bars, partial(is_asserted, lambda: [case])))
        if not change.unconfirmed_cases:
            return change
        if refusal := without_fresh_trials(ready):
            return replace(change, refusal=refusal)
        again = self.play(case, options.but(n=gates.confirm[1], recording="off"), first=ready.n)
        return replace(compare([replace(played_case, confirming=again.letters)]), weaker=change.weaker)

    def change_together(self, played: Sequence[ComparedCase], baseline: Baseline, gates: Gates) -> RunChange:
        """The change of all cases that were played, as one build of the history that judges it.

        By the rule "confirm" every case is played again here where so few trials passed in all.
        """
        before = [side for each in played for case in each.change.cases if (side := case.before)]
        after = [side for each in played for case in each.change.cases if (side := case.after)]
        compare = partial(
            compare_cases,
            baseline.name,
            before,
            rule=gates.regression_rule,
            confirm=gates.confirm,
            days=baseline.days,
            is_replayed=any(each.change.is_replayed for each in played),
            max_regressions=gates.max_regressions or 0,
        )
        change = compare(after)
        weaker = next((each.change.weaker for each in played if each.change.weaker), ())
        places = {case.key.place for case in change.unconfirmed_cases}
        refusals = (without_fresh_trials(self._config(each.case, each.options)) for each in played if places)
        refusal = next(filter(None, refusals), "")
        if places and not refusal:
            fresh = [
                self.play(each.case, each.options.but(n=gates.confirm[1], recording="off"), first=each.n).letters
                if side.key.place in places
                else side.confirming
                for each, side in zip(played, after, strict=True)
            ]
            change = compare([replace(side, confirming=letters) for side, letters in zip(after, fresh, strict=True)])
        return replace(change, refusal=refusal, weaker=weaker)

    def close(self) -> None:
        """End the workers and the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _config(self, case: Case, options: RunOptions) -> RunConfig:
        recording = Recording(folder=str(recordings_folder(self._settings)))
        ready = with_defaults(options, self._settings, self._agent.root, self._agent.isolation)
        config = apply_options(RunConfig(self._agent, "", recording=recording), ready, [case])
        config = with_executor(config, self._settings.executors)
        check_place(config)
        return config

    async def _check(self, plan: RunPlan) -> None:
        """Raise UsageError for a model of the run; the agent is asked once, in the worker that plays it afterwards."""
        host = ChatPlayers()
        try:
            description = self._description = self._description or await host.describe(self._agent)
            await check_model_names(partial(self._model_fault, host), plan, description)
            if self._executor is None and self._ready is None:
                self._ready = host.give_away(self._agent, version_of(self._agent))
        finally:
            await host.close()
        check_models(plan, description, self._settings.environment)

    async def _model_fault(self, host: ChatPlayers, agent: AgentRef, model: str) -> str:
        if model not in self._model_faults:
            self._model_faults[model] = await host.model_fault(agent, model)
        return self._model_faults[model]

    async def _play(self, case: Case, config: RunConfig, first: int) -> CaseResult:
        executor = self._open_executor(config)
        number = next(self._numbers)
        specs = [trial_spec(config, number, case, 0, index) for index in range(first, first + config.n)]
        futures = [self._loop.create_future() for _ in specs]
        for spec, future in zip(specs, futures, strict=True):
            self._futures[number, spec.trial_index] = future
            await executor.submit(spec)
        results = await asyncio.gather(*futures)
        if executor.end_reason and any(result.status == "cancelled" for result in results):
            raise EvaldeskError(executor.end_reason)
        tool_results = (as_tool_judges(config.compat, case, self._scrubbed(each), config.criteria) for each in results)
        return CaseResult(case, tuple(tool_results), config.n)

    def _open_executor(self, config: RunConfig) -> Executor:
        if self._executor is None:
            at_once = replace(config, concurrency=self._concurrency)
            self._executor = open_executor(at_once, self._local, os.environ)
            self._reading = asyncio.create_task(self._read(self._executor))
        return self._executor

    def _local(self, config: RunConfig) -> LocalExecutor:
        launcher = launcher_of_run(self._settings, config)
        players: list[WorkerProcess] = []
        if self._ready and launcher == launcher_of(self._agent):  # another one would see eval sets
            players, self._ready = [self._ready], None
        return LocalExecutor(
            1,
            config.concurrency,
            launcher=launcher,
            players=players,
            isolation=config.isolation,
            folder=self._agent.folder,
        )

    async def _read(self, executor: Executor) -> None:
        async for result in executor.results():
            future = self._futures.pop((result.run_id, result.trial_index))
            if not future.done():
                future.set_result(result)

    async def _close(self) -> None:
        if self._ready:
            await self._ready.close()
        if self._executor and self._reading:
            await self._executor.close()
            await self._reading
