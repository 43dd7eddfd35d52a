"""The driver of one run: hands out its pending trials within its cost, and commits each result before it is shown.

Its writer goes on trying while the disk takes nothing.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import re
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from evaldesk.desk.other_tools import as_tool_judges
from evaldesk.desk.runs.fresh_trials import without_fresh_trials
from evaldesk.desk.runs.gates.conclusion import Ending
from evaldesk.desk.runs.plan import order_of_play
from evaldesk.desk.runs.rescoring import StoredTrials, missing_ending
from evaldesk.desk.runs.stored_runs import plan_confirming
from evaldesk.engine import Executor, GradeSpec, drive_batches
from evaldesk.engine.driver.grading_files import DATA
from evaldesk.engine.worker.attempt import pauses_sentence
from evaldesk.errors import REASON_LIMIT, DamagedDatabaseError, LostDatabaseError, WorkspaceError
from evaldesk.model import Case, RunConfig, TrialResult, TrialSpec
from evaldesk.model.conclusion import Stop, StopRule
from evaldesk.model.fork import ForkPart, Prefix, trial_place
from evaldesk.model.run import Place, is_more
from evaldesk.model.stored import PendingTrial, TrialKey
from evaldesk.model.transcript import FATAL_KINDS
from evaldesk.reading.pinned_turns import pinned_turns
from evaldesk.run_options import KEEP, OWN
from evaldesk.store import RunStore, Store
from evaldesk.store.runs.planning import Planning
from evaldesk.wording.words import cost_words, stopped_words

if TYPE_CHECKING:
    from evaldesk.desk.experiments.turns import Rank, VariantTurns
    from evaldesk.desk.runs.deciding import Decider

BATCH_SIZE = 100
BATCH_S = 0.05
PAUSE_S = 0.5
ROOM_S = 0.01
POOLED_AT_ONCE = 50
MAX_UNSTORED = 1_000
FATAL_WORDS: Mapping[str, str] = {
    "agent_import": "The agent could not be imported",
    "metric_import": "A function of the criteria could not be imported",
    "authentication": "The model's provider does not accept the key",
    "permission": "The model's provider does not let the key use the model",
    "quota": "The quota at the model's provider is used up",
    "unknown_model": "The model does not exist",
    "no_model": "The agent needs a model",
    "client_setup": "The client of the model cannot send any request",
}


class RunDriver:
    """One run while it is played. `in_flight` are the trials that a worker has and the store has not.

    `trouble` says why finished trials cannot be stored at this moment; no trial is started meanwhile. `pause` says why
    the models of its trials wait. With `max_cost` and `tells_cost` no more trials begin once one does not tell its
    cost. By `stop_rule` no more trials begin once its gates are `decided`.
    """

    def __init__(
        self,
        run_id: int,
        config: RunConfig,
        store: Store,
        executor: Executor,
        *,
        writer: RunWriter,
        scrubbed: Callable[[TrialResult], TrialResult],
        on_change: Callable[[], None] = lambda: None,
        max_cost: float | None = None,
        cost_so_far: float = 0.0,
        tells_cost: bool = True,
        lease: int | None = None,
        planning: Planning | None = None,
        stop_rule: StopRule | None = None,
        turns: VariantTurns | None = None,
    ) -> None:
        self.run_id = run_id
        self.in_flight: set[TrialKey] = set()
        self.decided: Stop | None = None
        self.stop_rule = stop_rule
        self.trouble = ""
        self.pause = ""
        self._config = config
        self._store = store
        self._executor = executor
        self._cost_so_far = cost_so_far
        self._max_cost = max_cost
        self._needs_cost = max_cost is not None and tells_cost
        self._lease = lease
        self._planning = planning
        self._writer = writer
        self._scrubbed = scrubbed
        self._on_change = on_change
        self._source_trials = StoredTrials(store.runs, config, run_id) if config.source_run_id is not None else None
        self._turns = turns
        self._queue = TrialQueue(
            store.runs,
            run_id,
            self._source_trials.expect if self._source_trials else lambda _: None,
            rank=turns.rank if turns else None,
        )
        self._decider: Decider | None = None
        self._prefix_of_fork: Prefix | None = None
        self._cases: dict[TrialKey, Case] = {}
        self._n_least = 0
        self._fatal = ""
        self._without_cost: TrialKey | None = None
        self._n_cancelled = 0
        self._n_missing = 0
        self._is_stopped = False
        self._is_given_up = False
        self._cancelling: asyncio.Task[None] | None = None
        self._n_unjudged = 0
        """Stored trials that the rule of the stop has not seen yet."""

    async def drive(self) -> Ending:
        """Play until nothing is pending, the run is stopped or decided, or a model refuses for good.

        Raises ConflictError once another process has taken the run.
        """
        telling = asyncio.create_task(self._tell_pauses())
        try:
            await self._writer.write(self._queue.look)
            self._n_least = (await asyncio.to_thread(self._store.runs.summary, self.run_id)).n_least
            await self._decide()
            await self._confirm()
            while self._queue.n_left and not (self._is_stopped or self._is_beyond_limit or self.decided):
                if self._turns and self._turns.reason:
                    break
                concurrency = self._config.concurrency
                async with (
                    aclosing(self._hand_out()) as specs,
                    aclosing(drive_batches(specs, self._executor, concurrency, self._count_end)) as batches,
                ):
                    async for batch in batches:
                        await self._commit(batch)
                        await asyncio.sleep(BATCH_S if self.in_flight else 0)
                await self._confirm()
        finally:
            telling.cancel()
            await self._executor.close()
            self.in_flight.clear()
            self.pause = ""
        if self._fatal:
            return Ending("failed", self._fatal)
        if self._executor.end_reason:
            return Ending("stopped", f"{self._executor.end_reason} Resume the run later.")
        if self._n_missing:
            return await asyncio.to_thread(missing_ending, self._store.runs, self._config, self._n_missing)
        n_left = self._queue.n_left
        if self.decided and n_left and not self._n_cancelled:
            n_trials = (await asyncio.to_thread(self._store.runs.summary, self.run_id)).n_trials
            return Ending("finished", decided_sentence(self.decided, n_trials), self.decided)
        if self._config.gates.is_pooled and not (n_left or self._n_cancelled):
            await self._writer.write_with_retry(self._store_pooled_failures)
        if n_left and self._turns and self._turns.reason and not self._n_cancelled:
            return Ending("stopped", self._turns.reason)
        if n_left and self._max_cost is not None and self._is_overspent:
            return Ending("stopped", overspent_sentence(self._cost_so_far, self._max_cost, n_left))
        if n_left and self._max_cost is not None and self._without_cost:
            case = self._store.runs.case(self.run_id, self._without_cost[0])
            return Ending("stopped", untold_sentence(case.id, self._without_cost[1], self._max_cost, n_left))
        return Ending("stopped" if n_left or self._n_cancelled else "finished")

    async def _confirm(self) -> None:
        """When every planned trial is played: play the cases again that seem to have regressed, if a gate asks for it.

        A run that scores stored trials again plays none.
        """
        is_whole = not (self.decided or self._queue.n_left or self._n_cancelled or self._n_missing or self._fatal)
        is_asked = self._config.gates.regression_rule == "confirm" and self._config.source_run_id is None
        if not (is_whole and is_asked) or without_fresh_trials(self._config):
            return
        plan = functools.partial(plan_confirming, self._store.runs, self.run_id, self._config.gates, self._lease)
        await self._writer.write_with_retry(plan)
        await self._writer.write(self._queue.look)

    # A case is judged once, when its last trial is stored: decision 518.
    def _store_pooled_failures(self) -> None:
        """Judge the trials of each case together, a few cases at a time."""
        from evaldesk.desk.adk_verdict import pooled_failure  # most runs judge single trials
        from evaldesk.desk.runs.run_result import CaseResult

        runs, criteria = self._store.runs, self._config.criteria
        strips = runs.strips(self.run_id)
        for start in range(0, len(strips), POOLED_AT_ONCE):
            indexes = range(start, min(start + POOLED_AT_ONCE, len(strips)))
            cases = runs.some_cases(self.run_id, list(indexes))
            keys = [(index, at) for index in indexes for at in range(len(strips[index]))]
            trials = runs.trials(self.run_id, keys)
            failures = {
                index: pooled_failure(
                    CaseResult(
                        cases[index],
                        tuple(trials[key] for key in keys if key[0] == index and key in trials),
                        len(strips[index]),
                    ),
                    criteria,
                )
                for index in indexes
            }
            runs.set_pooled_failures(self.run_id, failures, lease=self._lease)

    async def _decide(self) -> None:
        """Look after whole blocks whether the gates are decided, if that ends the run."""
        if self.stop_rule is None or self.decided or (self._planning and not self._planning.is_done):
            return
        if self._decider is None or self._decider.rule != self.stop_rule:
            from evaldesk.desk.runs.deciding import decider_of  # most runs play every trial

            self._decider = await asyncio.to_thread(decider_of, self._store.runs, self.run_id, self.stop_rule)
        self.decided = await asyncio.to_thread(self._decider.look_in, self._store.runs, self.run_id)

    @property
    def places(self) -> Sequence[Place]:
        """Where its trials are played at this moment."""
        return self._executor.places

    def stop(self) -> None:
        """Start no more trials; running ones finish and count."""
        self._is_stopped = True
        if self._turns:
            self._turns.leave()

    async def cancel(self) -> None:
        """Start no more trials and end running ones, which stay planned."""
        self.stop()
        await self._executor.cancel()

    async def _tell_pauses(self) -> None:
        """See, while the run goes on, when its trials begin and cease to wait for their models."""
        while True:
            await asyncio.sleep(PAUSE_S)
            pause = pauses_sentence(self._executor.pauses)
            if pause != self.pause:
                self.pause = pause
                self._on_change()
                if self._turns:
                    self._turns.hold(is_held=bool(pause))

    async def _hand_out(self) -> AsyncGenerator[TrialSpec | GradeSpec]:
        try:
            async with aclosing(self._hand_out_each()) as specs:
                async for spec in specs:
                    yield spec
        finally:
            if self._turns:
                self._turns.leave()

    async def _hand_out_each(self) -> AsyncGenerator[TrialSpec | GradeSpec]:
        while self._queue.n_left and self._may_begin():
            if self.stop_rule and len(self.in_flight) + self._n_unjudged >= self._config.concurrency:
                await asyncio.sleep(ROOM_S)  # those that ended are looked at before another begins
                continue
            if not self._queue.is_read:
                await self._read_page()
                continue
            if self._turns:
                if not await self._turns.wait(self._queue.key):
                    return
                if not self._may_begin():
                    self._turns.give_back()
                    continue
            trial, case = self._queue.take()
            spec = await self._spec(trial, case)
            if spec is None:
                self._n_missing += 1
                continue
            key = trial.case_index, trial.trial_index
            self._cases[key] = case
            self.in_flight.add(key)
            self._on_change()
            yield spec

    async def _read_page(self) -> None:
        """Read more trials, or wait for some while the run is still planned."""
        is_planned = self._planning is None or self._planning.is_done
        if self._queue.is_shuffled and not is_planned:  # any case may come next
            await asyncio.sleep(BATCH_S)
            return
        if await asyncio.to_thread(self._queue.read_page):
            return
        if is_planned:
            self._queue.n_left = 0
        else:
            await asyncio.sleep(BATCH_S)

    def _may_begin(self) -> bool:
        """Whether another trial may begin: not while many finished ones wait for a disk that is slow."""
        if self._is_stopped or self._is_given_up or self._is_beyond_limit or self.decided or self.trouble:
            return False
        return len(self.in_flight) < self._config.concurrency + MAX_UNSTORED

    @property
    def _is_overspent(self) -> bool:
        return is_more(self._cost_so_far, self._max_cost)

    @property
    def _is_beyond_limit(self) -> bool:
        """Whether the trials cost more than the limit, or one does not tell its cost, so that no limit can be kept."""
        return self._is_overspent or self._without_cost is not None

    async def _spec(self, trial: PendingTrial, case: Case) -> TrialSpec | GradeSpec | None:
        config = self._config
        if self._source_trials is not None and self._source_trials.is_read(trial):
            return self._source_trials.grade_spec(trial, case)
        if self._source_trials is not None:
            return await asyncio.to_thread(self._source_trials.grade_spec, trial, case)
        spec = trial_spec(config, self.run_id, case, trial.case_index, trial.trial_index, trial.attempt)
        if config.fork:
            return replace(spec, prefix=await self._prefix(case, config.fork))
        return as_fresh(spec) if await self._is_confirming(trial) else spec

    async def _prefix(self, case: Case, part: ForkPart) -> Prefix:
        """The pinned turns of a fork, read once."""
        if self._prefix_of_fork is None:
            turns = await asyncio.to_thread(self._store.forks.pinned, self.run_id)
            state = turns[-1].state_after if turns else case.initial_state
            point = part.point
            place = trial_place(point.run_id, point.case_index, point.trial_index)
            n_calls = part.n_prefix_calls
            self._prefix_of_fork = Prefix(turns, state, part.message, n_calls, point.trial_index, place)
        return self._prefix_of_fork

    async def _is_confirming(self, trial: PendingTrial) -> bool:
        """Whether the trial comes after the planned ones of its case."""
        if self._config.gates.regression_rule != "confirm" or trial.trial_index < self._n_least:
            return False
        (strip,) = await asyncio.to_thread(self._store.runs.strips, self.run_id, [trial.case_index])
        return trial.trial_index >= len(strip)

    async def _commit(self, results: Sequence[TrialResult]) -> None:
        """Take secrets out, make results durable, then let them be seen."""
        clean = await self._writer.write(lambda: [self._scrubbed(result) for result in results])
        checked_results = [self._check_fatal_error(result) for result in clean]
        results = (
            await asyncio.to_thread(self._as_tool_judges, checked_results)
            if self._config.compat != OWN
            else checked_results
        )
        for start in range(0, len(results), BATCH_SIZE):
            batch = results[start : start + BATCH_SIZE]
            await self._record(batch)
            keys = [(result.case_index, result.trial_index) for result in batch]
            self._n_unjudged += len(keys)
            self.in_flight.difference_update(keys)
            if self._turns:
                self._turns.store(len(batch))
            for key in keys:
                self._cases.pop(key, None)
            self._on_change()
        await self._decide()
        self._n_unjudged = 0

    async def _record(self, batch: Sequence[TrialResult]) -> None:
        def note_refusal(error: Exception) -> None:
            trials = "1 finished trial waits" if len(batch) == 1 else f"{len(batch)} finished trials wait"
            self.trouble = f"{trials} to be stored: {error}"
            self._on_change()

        record = functools.partial(self._store.runs.record, lease=self._lease)
        await self._writer.write_with_retry(record, batch, on_refusal=note_refusal)
        self.trouble = ""

    def _count_end(self, result: TrialResult) -> None:
        """Count the cost of a finished trial, and start no more after an error that every other one would meet.

        Storing it takes a while. An unknown cost counts nothing; with a limit of cost no more trials start either.
        """
        own = self._without_playing(result)
        if self._turns:
            self._turns.end(own)
        self._cost_so_far += own.cost or 0.0
        if self._needs_cost and not self._without_cost and own.status == "finished" and not own.tells_cost:
            self._without_cost = own.case_index, own.trial_index
        self._is_given_up |= bool(fatal_sentence(own))

    def _without_playing(self, result: TrialResult) -> TrialResult:
        """The result of a re-score without the error and the cost of playing the trial."""
        if self._config.source_run_id is None:
            return result
        return replace(result, error=None, usages=tuple(each for each in result.usages if each.role == "judge"))

    def _as_tool_judges(self, results: Sequence[TrialResult]) -> list[TrialResult]:
        tool, criteria = self._config.compat, self._config.criteria
        return [
            as_tool_judges(tool, self._cases[each.case_index, each.trial_index], each, criteria) for each in results
        ]

    def _check_fatal_error(self, result: TrialResult) -> TrialResult:
        """Stop the run at the first fatal error, which counts; other trials that meet it stay planned."""
        if result.status == "cancelled":
            self._is_stopped = True
            self._n_cancelled += 1
            return result
        sentence = fatal_sentence(self._without_playing(result))
        if not sentence:
            return result
        if self._fatal:
            return self._check_fatal_error(replace(result, status="cancelled"))
        self._fatal = sentence
        self._is_stopped = True
        self._cancelling = asyncio.create_task(self._executor.cancel())
        return result


PAGE = 500
CASES_KEPT = 2 * PAGE
"""Of a run with fewer cases each is read once, however many trials it has."""


class TrialQueue:
    """The pending trials of a run in the order of play. `n_left` counts the remaining ones.

    `on_page` is told the trials of each page before one of them is taken. With `rank` they come in that order.
    """

    def __init__(
        self,
        runs: RunStore,
        run_id: int,
        on_page: Callable[[Sequence[PendingTrial]], None] = lambda _: None,
        *,
        rank: Callable[[TrialKey], Rank] | None = None,
    ) -> None:
        self.n_left = 0
        self._rank = rank
        self._ranked: deque[PendingTrial] | None = None
        self._runs = runs
        self._run_id = run_id
        self._on_page = on_page
        self._page: deque[PendingTrial] = deque()
        self._last: TrialKey | None = None
        self._cases: OrderedDict[int, Case] = OrderedDict()
        self._order: Sequence[int] | None = None

    def look(self) -> None:
        """Count the trials that are to be played, and begin with the first of them."""
        summary = self._runs.summary(self._run_id)
        self.n_left = summary.n_todo
        self._order = order_of_play(summary.config, summary.n_cases, summary.n_most)
        self._page.clear()
        self._ranked = None
        self._last = None

    def read_page(self) -> bool:
        """Read more trials; False when no more are stored yet."""
        page = (
            self._runs.pending(self._run_id, self._last, PAGE, self._order) if self._rank is None else self._by_rank()
        )
        if not page:
            return False
        case_indices = {trial.case_index for trial in page}
        missing_cases = sorted(case_indices - self._cases.keys())
        if missing_cases:
            self._cases |= self._runs.some_cases(self._run_id, missing_cases)
        for index in case_indices:
            self._cases.move_to_end(index)
        while len(self._cases) > max(CASES_KEPT, len(case_indices)):
            self._cases.popitem(last=False)
        self._on_page(page)
        self._page.extend(page)
        self._last = (page[-1].case_index, page[-1].trial_index)
        return True

    def _by_rank(self) -> list[PendingTrial]:
        """The next trials by their rank, of all that are pending."""
        if self._ranked is None:
            trials = self._runs.pending(self._run_id)
            rank = self._rank or (lambda key: (key[1], ""))
            self._ranked = deque(sorted(trials, key=lambda each: rank((each.case_index, each.trial_index))))
        return [self._ranked.popleft() for _ in range(min(PAGE, len(self._ranked)))]

    @property
    def is_shuffled(self) -> bool:
        """Whether the trials come in another order than that of the file."""
        return self._order is not None or self._rank is not None

    @property
    def key(self) -> TrialKey:
        """The place of the next trial, where one is read."""
        return self._page[0].case_index, self._page[0].trial_index

    @property
    def is_read(self) -> bool:
        """Whether a trial can be taken at once."""
        return bool(self._page)

    def take(self) -> tuple[PendingTrial, Case]:
        """The next trial and its case."""
        trial = self._page.popleft()
        self.n_left -= 1
        return trial, self._cases[trial.case_index]


def decided_sentence(stop: Stop, n_planned: int) -> str:
    """`Stopped when decided, after 58 of 200 trials: pass rate cannot reach 0.9 any more.`"""
    why = next((each for each in stop.answers if each.answer == "failed"), stop.answers[0]).sentence
    return f"{stopped_words(stop, n_planned)}: {re.split('[:;] ', why)[0]}."


def trial_spec(
    config: RunConfig, run_id: int, case: Case, case_index: int, trial_index: int, attempt: int = 1
) -> TrialSpec:
    """The input of a worker for one trial of the configuration."""
    return TrialSpec(
        run_id=run_id,
        case_index=case_index,
        trial_index=trial_index,
        case=case,
        agent=config.agent,
        criteria=config.criteria,
        limits=config.limits,
        model=config.model,
        model_options=config.model_options,
        user=config.user,
        recording=config.recording,
        seed=trial_seed(config.seed, case.id, trial_index + (config.fork.first if config.fork else 0)),
        attempt=attempt,
        strict=config.is_strict,
        shows_case=config.shows_case,
        keeps_prompts=config.prompts == KEEP,
        needs_cost=config.gates.max_cost is not None,
        prefix=None if config.fork else prefix_of_case(case),
    )


def prefix_of_case(case: Case) -> Prefix | None:
    """The pinned turns of a case, which its trials begin with; None without any."""
    turns = pinned_turns(case)
    return Prefix(turns, turns[-1].state_after) if turns else None


def as_fresh(spec: TrialSpec) -> TrialSpec:
    """The trial without the recording: a confirming trial is new evidence, and never a recorded answer."""
    return replace(spec, recording=replace(spec.recording, mode="off"))


def trial_seed(seed: int, case_id: str, trial_index: int) -> int:
    """The seed of one trial: the same case and trial of two runs with one seed get the same."""
    return zlib.crc32(f"{seed}/{case_id}/{trial_index}".encode())


def fatal_sentence(result: TrialResult) -> str:
    """Why the run stops: an error of the trial or of its judges that every other trial would meet; empty for none."""
    errors = (result.error, *(score.error for score in result.scores))
    error = next((each for each in errors if each and each.kind in FATAL_KINDS), None)
    if error is None:
        return ""
    words = FATAL_WORDS.get(error.kind, "The model refuses every call")
    lines = error.message.strip().splitlines()
    return f"{words}, so no more trials were started: {lines[0] if lines else error.kind}"[:REASON_LIMIT]


def overspent_sentence(cost: float, max_cost: float, n_left: int) -> str:
    """Why a run was stopped, in one sentence."""
    trials = "1 trial was" if n_left == 1 else f"{n_left:,} trials were"
    return f"The trials cost {cost_words(cost)}, more than the limit of ${max_cost:g}, so {trials} not started."


def untold_sentence(case_id: str, trial_index: int, max_cost: float, n_left: int) -> str:
    """Why a run was stopped whose agent was to report its cost, in one sentence."""
    trials = "1 trial was" if n_left == 1 else f"{n_left:,} trials were"
    trial = f"Trial {trial_index + 1} of case {case_id!r} does not tell its cost"
    promise = "An agent that reports the cost of each call, or makes none, says tells_cost = true"
    return f"{trial}, so that the limit of ${max_cost:g} cannot be kept, and {trials} not started. {promise}."


def grading_sentence(changes: Sequence[str]) -> str:
    """The note of a run whose scoring files were changed while it was played; empty where none was."""
    data = [phrase for phrase in changes if phrase.startswith(DATA)]
    code = [phrase for phrase in changes if phrase not in data]
    return " ".join(
        f"{_changed_words(phrases)} changed while the run was played; {consequence}."
        for phrases, consequence in (
            (code, "trials were scored by the copy from before its start"),
            (data, "eval functions beside it read it as it was then"),
        )
        if phrases
    )


def _changed_words(phrases: Sequence[str]) -> str:
    names = ", ".join(phrases[:3]) + (f" and {len(phrases) - 3} more" if len(phrases) > 3 else "")
    return f"{names} {'was' if len(phrases) == 1 else 'were'}"


log = logging.getLogger("evaldesk.runs")

RETRY_S = 2.0
T = TypeVar("T")


class RunWriter:
    """Writes one thing after the other; `give_up_after_s` bounds the retries, without end by default."""

    def __init__(self) -> None:
        self.give_up_after_s = math.inf
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaldesk-writer")
        self._refused_since: float | None = None

    async def write(self, call: Callable[..., T], *args: object, **options: object) -> T:
        """Carry out `call` in the thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, functools.partial(call, *args, **options))

    async def write_with_retry(
        self, call: Callable[..., T], *args: object, on_refusal: Callable[[Exception], None] = lambda _: None
    ) -> T:
        """As `write`, but go on trying while the disk or the database says no: finished trials are never dropped.

        Raises WorkspaceError after the last retry; the next write is then tried once.
        """
        while True:
            try:
                result = await self.write(call, *args)
            except (LostDatabaseError, DamagedDatabaseError):
                raise
            except (WorkspaceError, OSError) as error:
                self._note_failure(error)
                on_refusal(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._refused_since = None
                return result

    async def close(self) -> None:
        """End the thread after its present write."""
        await asyncio.to_thread(self._thread.shutdown)

    def _note_failure(self, error: Exception) -> None:
        now = time.monotonic()
        if self._refused_since is None:
            log.warning("runs cannot be stored, which is tried again: %s", error)
            self._refused_since = now
        if now - self._refused_since >= self.give_up_after_s:
            outcome = f"given up after {self.give_up_after_s / 60:.0f} min"
            raise WorkspaceError(f"{error}; {outcome}: make room, then resume the run") from error
