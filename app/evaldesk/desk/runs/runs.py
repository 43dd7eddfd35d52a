"""Runs: planned, played in the background by this process, stopped, resumed and watched."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.desk.criteria.criteria import allowed_criteria, find_criteria_file, given_criteria, ready_criteria
from evaldesk.desk.evalsets.data_sets import tag_changes, tagged_set
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.evalsets.versions import note_version
from evaldesk.desk.experiments.turns import Turns
from evaldesk.desk.process_owner import is_elsewhere
from evaldesk.desk.runs.allocating import with_budget
from evaldesk.desk.runs.driver import RunDriver
from evaldesk.desk.runs.first_runs import first_seed
from evaldesk.desk.runs.input_lock import continued_run
from evaldesk.desk.runs.kept_workers import SharedWorkers
from evaldesk.desk.runs.model_checks import check_models, unused_options
from evaldesk.desk.runs.plan import (
    RunOptions,
    RunPlan,
    RunSubject,
    plan_run,
    recordings_folder,
    with_criteria_of_set,
    with_defaults,
    with_tag_authors,
)
from evaldesk.desk.runs.players import Playing, RunPlayers, Tick
from evaldesk.desk.runs.provenance import ForeignRun, Provenance, run_digest
from evaldesk.desk.runs.rescoring import plan_rescoring, same_criteria
from evaldesk.desk.runs.sandboxing import launcher_of_run
from evaldesk.desk.runs.set_changes import changes_since
from evaldesk.desk.runs.stored_runs import StoredRuns, is_held
from evaldesk.desk.trust import Trust
from evaldesk.engine import Executor, LocalExecutor, WarmPool
from evaldesk.engine.driver.code_files import (
    FunctionsKey,
    code_change,
    function_files,
    functions_key,
    functions_version,
)
from evaldesk.engine.driver.grading_files import GradingFiles, changed_since, clock_words, freeze
from evaldesk.engine.executors import has_own_driver, open_executor
from evaldesk.engine.launch import Launcher
from evaldesk.errors import ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError, WorkspaceError
from evaldesk.model import Criterion, Gates, RunConfig, RunStatus
from evaldesk.model.conclusion import StopRule
from evaldesk.model.run import LIVE, Place
from evaldesk.model.stored import RunSummary, TrialKey, host_of
from evaldesk.settings import Settings
from evaldesk.store import RunStore, Store
from evaldesk.store.runs.planning import Planning
from evaldesk.store.runs.run_store import is_playable

log = logging.getLogger("evaldesk.runs")

POLL_S = 1.0
FULL_DISK_S = 600.0
WAITING = "waiting"
"""In place of a driver: the run was submitted, and the first free process takes it up."""
TAKEN_OVER = "Taken over from"

T = TypeVar("T")


class RunDesk:
    """The runs of a workspace, and the drivers of the runs in this process."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        open_executor: Callable[[RunConfig], Executor | None] = lambda _: None,
        chance: random.Random | None = None,
        trust: Trust | None = None,
    ) -> None:
        self._trust = trust
        self._provenance = Provenance(settings, trust) if trust else None
        self._settings = settings
        self._store = store
        self._chance = chance or random.SystemRandom()
        self._warm_pool = WarmPool(settings.n_warm_workers)
        self.shared_workers: SharedWorkers | None = None
        self.hand_over: Callable[[int, str], object] | None = None
        self._players = RunPlayers(settings, store, self._open_executor, self._check_provenance)
        self._open_own = open_executor
        self._playing = self._players.playing
        self._grading_copies: dict[FunctionsKey, GradingFiles] = {}
        self._began_at_ns = time.time_ns()
        self._edits: dict[str, int] = {}
        self._unplayed: list[Planning] = []  # stored here, or about to be, and not yet played
        self._write = self._players.writer.write

    def warm(self, *, has_models: bool) -> None:
        """Have workers ready before the first run; with LiteLLM imported where an agent has a model to call."""
        self._warm_pool.fill("grader_with_litellm" if has_models else "grader")

    def freeze(self, criteria: Sequence[Criterion], root: str) -> None:
        """Copy the code that scores by these criteria now, for the runs of a process that plays and then ends.

        It is for a command, which calls it before the agent is imported to describe itself.
        """
        with contextlib.suppress(UsageError):  # the plan of the run says it
            ready = ready_criteria(criteria, self._settings, root)
            self._grading_copies[functions_key(ready)] = freeze(ready)

    def plan_for_page(self, subject: RunSubject, options: RunOptions) -> RunPlan:
        """The run of a page, with the criteria that it may name. Raises UsageError naming the field at fault."""
        options = options.but(expect_version=None)  # a person sees the set that the page runs
        if options.criteria is not None:
            is_by_file = options.criteria == _criteria_beside(subject.evalset_path)
            options = options.but(criteria=allowed_criteria(options.criteria, self._settings), is_by_file=is_by_file)
        return self.plan_for(subject, options)

    def plan_for(self, subject: RunSubject, options: RunOptions) -> RunPlan:
        """The run of a command line. Raises UsageError naming the field at fault."""
        if subject.evalset_path:
            changes = tag_changes(self._store, subject.evalset_id, Path(subject.evalset_path))
            subject = replace(subject, evalset=tagged_set(subject.evalset, changes))
        options, is_by_set = with_criteria_of_set(options, subject.evalset)
        options = with_defaults(options, self._settings, subject.agent.root, subject.agent.isolation)
        earlier = options.like.model if options.like else None  # a person named it then
        models = (*self._settings.models, *((earlier,) if earlier else ()))
        folder = str(recordings_folder(self._settings))
        chance = self._chance.randrange(2**31)
        plan = plan_run(
            subject, options, models=models, seed=chance, recordings=folder, executors=self._settings.executors
        )
        config = with_tag_authors(self._store.case_tags.authors, replace(plan.config, is_by_set=is_by_set))
        plan = replace(plan, config=config)
        if grading_files := self._grading_copies.get(functions_key(plan.config.criteria)):
            version = functions_version(plan.config.criteria, grading_files.copy.sources)
            plan = replace(plan, config=replace(plan.config, functions_version=version))
        if self._trust:
            self._trust.check_executor(plan.config)
        budget = plan.config.budget
        if budget is not None:
            plan = with_budget(plan, budget, StoredRuns(self._store.runs))
        if subject.description:
            check_models(plan, subject.description, self._settings.environment)
            plan = replace(plan, unused_options=unused_options(plan, subject.description))
            if subject.description.is_demo and plan.config.seed == chance:
                seed = first_seed(self._store, plan.config, plan.cases, subject.description)
                plan = replace(plan, config=replace(plan.config, seed=chance if seed is None else seed))
        return plan

    async def start(self, plan: RunPlan) -> int:
        """Store the run with all its planned trials, and play it in the background; gives its id."""
        self._check_agent(plan.config)
        run = await self.run_to_continue(plan)
        if run:
            await self._continue(run, plan)
            return run.id
        if self.hand_over and has_own_driver(plan.config.executor):
            run_id = await self.submit(plan)
            await asyncio.to_thread(self.hand_over, run_id, run_digest(plan.config))
            return run_id
        run_id, _ = await self._begin(plan)
        return run_id

    async def run_to_continue(self, plan: RunPlan) -> RunSummary | None:
        """The run of the name that the plan has, which is to go on; None where a new one begins.

        Raises UsageError where its inputs were others, ConflictError where it has nothing left to play, NotFoundError.
        """
        return await asyncio.to_thread(continued_run, StoredRuns(self._store.runs), plan)

    async def _continue(self, run: RunSummary, plan: RunPlan) -> None:
        if plan.config.retry_failed:
            await self.retry(run.id)
        else:
            await self.resume(run.id)

    async def start_together(self, plans: Sequence[RunPlan], begin: Callable[[Sequence[Planning]], T]) -> T:
        """Store the runs of an experiment by `begin`, in one transaction, and play them in the background.

        Gives the value of `begin`.
        """
        plannings, value = await self._plan_together(plans, begin)
        for planning in plannings:
            self._players.play(planning.run_id, planning=planning, part=planning.config.experiment)
            self._forget(planning)
        return value

    async def submit_together(
        self, plans: Sequence[RunPlan], begin: Callable[[Sequence[Planning]], T]
    ) -> tuple[T, list[int]]:
        """As `submit`, for the runs of an experiment; none waits to be taken up before all are stored.

        Gives the value of `begin`, and the runs.
        """
        plannings, value = await self._plan_together(plans, begin)
        for planning in plannings:
            while not planning.is_done:
                await self._write(planning.step)
        run_ids = [planning.run_id for planning in plannings]
        for summary in [await self.summary(run_id) for run_id in run_ids]:
            await self._write(self._store.runs.move_on, summary, "pending", "", driver=WAITING)
        for planning in plannings:
            self._forget(planning)
        return value, run_ids

    async def _plan_together(
        self, plans: Sequence[RunPlan], begin: Callable[[Sequence[Planning]], T]
    ) -> tuple[list[Planning], T]:
        """Store runs that are ours, with their first cases."""
        for plan in plans:
            self._check_agent(plan.config)
        for plan in plans:
            await asyncio.to_thread(self._note_version, plan)
        plannings = [self._planning(plan) for plan in plans]
        try:
            value = await self._write(begin, plannings)
        except Exception:
            for planning in plannings:
                self._forget(planning)
            raise
        for planning in plannings:
            await self._note_start(planning.run_id, planning.config)
        return plannings, value

    async def resume_together(self, run_ids: Sequence[int]) -> None:
        """As `resume`, for runs of an experiment: none begins before all are taken up. Raises as `resume`."""
        summaries = [await self.summary(run_id) for run_id in run_ids]
        parts = [summary.config.experiment for summary in summaries]
        expected = [(self._players.expect(part), part.variant_index) for part in parts if part]
        try:
            for run_id in run_ids:
                await self.resume(run_id)
        finally:
            self._forget_others(expected)

    async def submit(self, plan: RunPlan) -> int:
        """Store the run for the process that takes it up: the desk that is open, or a driver of its own."""
        self._check_agent(plan.config)
        if run := await self.run_to_continue(plan):
            if plan.config.retry_failed:
                await self._write(self._store.runs.retry_errored, run.id)
            if run.status not in LIVE:
                await self.offer(run.id)
            return run.id
        await asyncio.to_thread(self._note_version, plan)
        planning = self._planning(plan)
        if not planning.has_steps:
            self._forget(planning)
            of_plan = (plan.config, plan.cases, WAITING, plan.baseline, plan.n_each, plan.prefix)
            run_id = await self._write(self._store.runs.create, *of_plan)
            await self._note_start(run_id, plan.config)
            return run_id
        while not planning.is_done:  # ours until every trial is planned
            await self._write(planning.step)
        await self._note_start(planning.run_id, plan.config)
        summary = await self.summary(planning.run_id)
        await self._write(self._store.runs.move_on, summary, "pending", "", driver=WAITING)
        self._forget(planning)
        return planning.run_id

    async def offer(self, run_id: int) -> None:
        """Let the process that takes it up resume a run. Raises ConflictError, NotFoundError."""
        summary = await self.summary(run_id)
        check_playable(summary)
        self._check_provenance(summary)
        await self._check_nobody_drives(summary)
        if not await self._write(self._store.runs.move_on, summary, "pending", summary.reason, driver=WAITING):
            raise ConflictError(f"run {run_id} was taken up, stopped or deleted by another process just now")

    def foreign(self, run: RunSummary) -> ForeignRun | None:
        """The parts of a stored run that wait for a person before it is played here; None without any."""
        return self._provenance.foreign(run) if self._provenance else None

    async def may_play(self, run_id: int) -> bool:
        """Whether a run is played here without a question. Raises NotFoundError."""
        return await self._may_play(await self.summary(run_id))

    async def accept(self, run_id: int, digest: str) -> None:
        """Let a run be played here as it was shown, which `digest` tells. Raises NotFoundError, TrustError."""
        summary = await self.summary(run_id)
        check_playable(summary)
        if self._provenance:
            await asyncio.to_thread(self._provenance.accept, summary, digest)

    def take_word(self, run_id: int, digest: str) -> None:
        """Let this process play the run with this digest, as the process that started this one was allowed."""
        if self._provenance:
            self._provenance.take_word(run_id, digest)

    def own_part(self, run: RunSummary) -> RunConfig:
        """The configuration of a stored run with the parts that another run may copy here."""
        return self._provenance.own_part(run) if self._provenance else run.config

    async def same_criteria(self, run_id: int, criteria: Sequence[Criterion]) -> str:
        """The answer of `same_criteria` for criteria that are not ready yet. Raises NotFoundError, UsageError."""
        root = await self._root_of(await self.summary(run_id))
        ready = ready_criteria(criteria, self._settings, root)
        return await asyncio.to_thread(same_criteria, self._store.runs, run_id, ready)

    async def rescore(self, run_id: int, criteria: Sequence[Criterion], evalsets: EvalSetDesk | None = None) -> int:
        """Score a run's stored trials again as a new run; gives its id. Raises NotFoundError, Conflict-, UsageError.

        With `evalsets` by the expectations that the eval set has now, where a case still asks the same.
        """
        new_id, _ = await self._begin(await self.plan_rescoring(run_id, criteria, evalsets))
        return new_id

    async def plan_rescoring(
        self,
        run_id: int,
        criteria: Sequence[Criterion],
        evalsets: EvalSetDesk | None = None,
        gates: Gates | None = None,
    ) -> RunPlan:
        """The run that `rescore` begins, with `gates` of its own where they are given. Raises as that does."""
        summary = await self.summary(run_id)
        if self._trust:
            self._trust.check_runs()
        own = await asyncio.to_thread(self.own_part, summary)
        ready = ready_criteria(criteria, self._settings, own.agent.root)
        cases = None
        if evalsets is not None:
            cases = (await asyncio.to_thread(changes_since, evalsets, self._store.runs, summary)).cases
        return await asyncio.to_thread(plan_rescoring, self._store.runs, run_id, ready, own, cases, gates)

    async def run_to_end(
        self, plan: RunPlan, on_progress: Callable[[RunSummary], None], *, max_cost: float | None = None
    ) -> RunSummary:
        """Play a run here and now; tells of progress at most four times a second. Cancelling it stops the run.

        Once its trials cost more than `max_cost` US dollars it starts no others, and ends stopped. A waiting caller may
        be unable to empty a full disk: after FULL_DISK_S the run is failed, and the stored part can be resumed.
        """
        self._check_agent(plan.config)
        self._players.writer.give_up_after_s = FULL_DISK_S
        run = await self.run_to_continue(plan)
        if run:
            run_id = run.id
            await self._continue(run, plan)
            playing = self._playing.get(run_id)
        else:
            run_id, playing = await self._begin(plan, max_cost)
        try:
            ticks = playing.live.ticks() if playing else self.watch(run_id)
            async for _ in ticks:
                on_progress(await self.summary(run_id))
        except asyncio.CancelledError:
            await self.stop(run_id, cancel=True)
            if playing and playing.task:
                await asyncio.wait({playing.task})
            raise
        summary = await self.summary(run_id)
        return replace(summary, status="failed", reason=playing.unstored) if playing and playing.unstored else summary

    async def stop(self, run_id: int, *, cancel: bool = False) -> None:
        """Start no more trials of a run; running ones finish, or end now with `cancel` and stay planned.

        A run that another process drives is stopped by that process within moments. Raises NotFoundError, and
        WorkspaceError when a run that is stopped here cannot be stored so.
        """
        playing = self._playing.get(run_id)
        if playing is None:
            await self._ask_to_stop(run_id)
            return
        playing.is_stopped = True
        if playing.driver:
            playing.driver.stop()  # before the write: no trial begins while the disk takes its time
        try:
            await self._ask_to_stop(run_id)
        finally:  # a full disk, too: then only its end is not stored yet
            if playing.driver and cancel:
                await playing.driver.cancel()
            elif playing.driver:
                playing.driver.stop()
            elif playing.task and not playing.is_ending:  # its end is stored all the same
                playing.task.cancel()
            playing.live.touch()

    async def stop_when_decided(self, run_id: int, rule: StopRule | None) -> None:
        """Let a run end once its gates are decided, by which rule; None lets it play every trial.

        Nothing happens to a run that is over. Raises NotFoundError, and UsageError for a run of pooled verdicts.
        """
        if rule is not None and (await self.summary(run_id)).config.gates.is_pooled:
            raise UsageError("pooled verdicts are of all trials of a case, so none can be left out")
        await self._write(self._store.runs.set_stop_rule, run_id, rule)
        playing = self._playing.get(run_id)
        if playing and playing.driver:
            playing.driver.stop_rule = rule
            playing.live.touch()

    async def resume(self, run_id: int) -> None:
        """Play the trials that are still planned, with the same frozen configuration; nothing where none is.

        Raises ConflictError, NotFoundError.
        """
        if await self._is_going(run_id):
            return
        summary = await self.summary(run_id)
        check_playable(summary)
        if summary.status == "finished" and not summary.n_todo:  # by another click that was quicker
            return
        self._check_provenance(summary)
        if run_id in self._playing:  # another task here was quicker
            return
        await self._check_nobody_drives(summary)
        before = summary.reason if summary.reason.startswith(TAKEN_OVER) and summary.driver == WAITING else ""
        change = await asyncio.to_thread(code_change, summary.config)
        await self._take_up(summary, " ".join(filter(None, (before, change))))

    async def _take_up(self, summary: RunSummary, note: str = "") -> None:
        """Play a run that rests here, or let a process of its own do it. Raises ConflictError."""
        if not (self.hand_over and has_own_driver(summary.config.executor)):
            await self._players.take_up(summary, note)
            return
        if not await self._write(self._store.runs.move_on, summary, "pending", note, driver=WAITING):
            raise ConflictError(f"run {summary.id} was taken up, stopped or deleted by another process just now")
        await asyncio.to_thread(self.hand_over, summary.id, run_digest(summary.config))

    async def retry(self, run_id: int) -> int:
        """Plan the errored trials again and play them; returns their number. Raises ConflictError while it goes on."""
        if await self._is_going(run_id):
            raise ConflictError(f"run {run_id} is still running; stop it first, or wait for its end")
        summary = await self.summary(run_id)
        check_playable(summary)
        self._check_provenance(summary)
        await self._check_nobody_drives(summary)
        n = await self._write(self._store.runs.retry_errored, run_id)
        await self.resume(run_id)
        return n

    async def delete(self, *run_ids: int) -> None:
        """Move runs with all their trials to the trash, all or none. Raises ConflictError while one of them goes on."""
        for run_id in run_ids:
            if await self._is_going(run_id):
                raise ConflictError(f"run {run_id} is still running; stop it before you delete it")
        await asyncio.to_thread(self._store.runs.delete, *run_ids)

    async def restore(self, *run_ids: int) -> None:
        """Bring runs back from the trash, all or none. Raises NotFoundError when one is not there."""
        await self._write(self._store.runs.restore, *run_ids)

    @property
    def run_store(self) -> RunStore:
        """The runs as they are stored, for questions of pages."""
        return self._store.runs

    async def summary(self, run_id: int) -> RunSummary:
        """The run and its totals. Raises NotFoundError."""
        return await asyncio.to_thread(self._store.runs.summary, run_id)

    async def set_note(self, run_id: int, note: str, seen_note: str | None = None) -> None:
        """Change a person's note on a run. Raises NotFoundError."""
        await self._write(partial(self._store.runs.set_note, run_id, note, seen_note=seen_note))

    def in_flight(self, run_id: int) -> frozenset[TrialKey]:
        """The trials that are being played at this moment by this process."""
        driver = self._driver(run_id)
        return frozenset(driver.in_flight) if driver else frozenset()

    def trouble(self, run_id: int) -> str:
        """Why finished trials cannot be stored at this moment; empty when they can."""
        driver = self._driver(run_id)
        return driver.trouble if driver else ""

    def pause(self, run_id: int) -> str:
        """The reason why the models of its trials wait, where this process plays it; empty for none."""
        driver = self._driver(run_id)
        return driver.pause if driver else ""

    def places(self, run_id: int) -> Sequence[Place] | None:
        """Where its trials are played at this moment, where this process plays it; None elsewhere."""
        driver = self._driver(run_id)
        return driver.places if driver else None

    def _driver(self, run_id: int) -> RunDriver | None:
        playing = self._playing.get(run_id)
        return playing.driver if playing else None

    async def watch(self, run_id: int) -> AsyncIterator[Tick]:
        """The present moment, then every change at most four times a second; the last tick says so."""
        playing = self._playing.get(run_id)
        if playing:
            async for tick in playing.live.ticks():
                yield tick
            return
        tick = Tick(0)
        while (await self.summary(run_id)).status in LIVE:
            yield tick
            tick = replace(tick, number=tick.number + 1)
            await asyncio.sleep(POLL_S)
        yield replace(tick, is_last=True)

    async def start_up(self) -> None:
        """Go on with the runs that a dead desk left behind; those of a living process are left alone."""
        unfinished = await asyncio.to_thread(self._store.runs.unfinished_runs)
        parts = [summary.config.experiment for summary in unfinished]
        expected = [(self._players.expect(part), part.variant_index) for part in parts if part]
        for summary in unfinished:
            is_said = is_elsewhere(summary.driver)  # one that ended here may be this desk, opened again
            await self._take_over(summary, is_said=is_said)
        self._forget_others(expected)

    def _forget_others(self, expected: Sequence[tuple[Turns, int]]) -> None:
        """Let the variants of experiments that are played here wait for no other ones."""
        playing = [(each.turns, each.variant) for each in self._playing.values()]
        for turns, variant in expected:
            if (turns, variant) not in playing:
                turns.leave(variant)

    async def take_over(self, run_id: int) -> None:
        """Continue a run whose process is gone; nothing where this or another process plays it, or it is over."""
        if run_id in self._playing:
            return
        summary = await self.summary(run_id)
        if summary.status in LIVE:
            await self._take_over(summary)

    async def _take_over(self, summary: RunSummary, *, is_said: bool = True) -> None:
        """Continue a run whose process is gone, or end it where it was to stop."""
        if await self._is_held(summary) or not await self._may_play(summary):
            return
        try:
            if summary.status == "stopping":
                await self._write(self._store.runs.move_on, summary, "stopped", summary.reason)
            else:
                change = await asyncio.to_thread(code_change, summary.config)
                is_of_others = is_said and all(each.run_id != summary.id for each in self._unplayed)
                words = taken_over_words(summary.driver) if is_of_others else ""
                await self._take_up(summary, " ".join(filter(None, (words, change))))
        except (ConflictError, WorkspaceError) as error:  # another process was quicker, or the disk is full
            log.warning("not taken up: %s", error)

    async def poll_requests(self, *, takes_up: bool) -> None:
        """Look for requests to stop a run of ours once a second, and with `takes_up` for runs that nobody plays."""
        is_refused = False
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self._handle_requests(takes_up=takes_up)
                is_refused = False
            except (EvaldeskError, SQLAlchemyError) as error:
                if not is_refused:
                    log.warning("requests for runs cannot be read, which is tried again: %s", error)
                is_refused = True

    async def _handle_requests(self, *, takes_up: bool) -> None:
        for run_id, playing in list(self._playing.items()):
            with contextlib.suppress(NotFoundError):  # deleted while it waits for its turn, with which it ends
                summary_now = await self.summary(run_id)
                if playing.driver:
                    playing.driver.stop_rule = summary_now.stop_rule
                if not playing.is_stopped and summary_now.status == "stopping":
                    await self.stop(run_id)
        waiting: list[RunSummary] = []
        for summary in await asyncio.to_thread(self._store.runs.unfinished_runs) if takes_up else ():
            if summary.driver == WAITING and summary.status == "pending" and await self._may_play(summary):
                if self.hand_over and has_own_driver(summary.config.executor):
                    continue  # its process was started by the one that submitted it
                waiting.append(summary)
            elif host_of(summary.driver) and summary.id not in self._playing:
                await self._take_over(summary)
        await self._take_up_waiting(waiting)

    async def _take_up_waiting(self, summaries: Sequence[RunSummary]) -> None:
        """Play submitted runs; of an experiment no cell begins before all of its variants here are taken up."""
        parts = [summary.config.experiment for summary in summaries]
        expected = [(self._players.expect(part), part.variant_index) for part in parts if part]
        try:
            for summary in summaries:
                with contextlib.suppress(ConflictError):
                    await self._players.take_up(summary)
        finally:
            self._forget_others(expected)

    async def close(self) -> None:
        """End the runs of this process without a verdict; they stay `running` and go on at the next start."""
        await self._players.close()
        await self._warm_pool.close()

    def _check_agent(self, config: RunConfig) -> None:
        if self._trust:
            self._trust.check_agent(config.agent)

    def _check_provenance(self, summary: RunSummary) -> None:
        """Raise TrustError for a stored run that waits for a person."""
        if self._provenance:
            self._provenance.check(summary)

    async def _may_play(self, summary: RunSummary) -> bool:
        root, is_shared = summary.config.agent.root, self._settings.store
        if is_shared and root and not await asyncio.to_thread(os.path.isdir, root):
            return False
        return self._provenance is None or await asyncio.to_thread(self._provenance.is_allowed, summary)

    async def _note_start(self, run_id: int, config: RunConfig) -> None:
        """Note that this person starts the run, before any process looks at its row."""
        if self._provenance:
            await asyncio.to_thread(self._provenance.add, run_id, config)

    async def _root_of(self, summary: RunSummary) -> str:
        return (await asyncio.to_thread(self.own_part, summary)).agent.root

    async def _is_going(self, run_id: int) -> bool:
        """Whether this process plays the run; a run whose end is stored already is closed first."""
        playing = self._playing.get(run_id)
        if playing is None or playing.task is None:
            return playing is not None
        if (await self.summary(run_id)).status in LIVE:
            return True
        await asyncio.wait({playing.task})
        return False

    async def _begin(self, plan: RunPlan, max_cost: float | None = None) -> tuple[int, Playing]:
        """Store a run that is ours from its first moment, and play it."""
        note = await asyncio.to_thread(self._edited_sentence, plan.config.criteria)
        planning = await self._plan_first(plan)
        playing = self._players.play(planning.run_id, note, max_cost=max_cost, planning=planning)
        self._forget(planning)
        return planning.run_id, playing

    async def _plan_first(self, plan: RunPlan) -> Planning:
        """Store a run that is ours from its first moment, with its first cases."""
        await asyncio.to_thread(self._note_version, plan)
        planning = self._planning(plan)
        try:
            await self._write(planning.step)
            await self._note_start(planning.run_id, plan.config)
        except Exception:
            self._forget(planning)
            raise
        return planning

    def _note_version(self, plan: RunPlan) -> None:
        """Note the version of the eval set that a run plays, where its file is as nobody looked at it yet."""
        if plan.evalset is not None:
            path, reads_git = Path(plan.config.evalset_path), bool(self._trust and self._trust.is_given)
            note_version(self._store, plan.config.evalset_id, plan.evalset, path, origin="run", reads_git=reads_git)

    def _edited_sentence(self, criteria: Sequence[Criterion]) -> str:
        """The note of a run whose functions were edited since this process began, which an agent may have done.

        Each edit is in the note of one run. Empty without one.
        """
        edit_times = changed_since(function_files(criteria), self._began_at_ns)
        new_edits = {path: changed_at for path, changed_at in edit_times.items() if self._edits.get(path) != changed_at}
        self._edits |= new_edits
        file_names = ", ".join(
            f"{Path(path).name} (at {clock_words(changed_at)})" for path, changed_at in new_edits.items()
        )
        return file_names and f"{file_names} changed after this desk was opened, by a person or an agent: look at it."

    def _planning(self, plan: RunPlan) -> Planning:
        """The planning of a run that is ours."""
        owner = self._players.owner
        planning = self._store.runs.planning(plan.config, plan.cases, owner, plan.baseline, plan.n_each, plan.prefix)
        self._unplayed.append(planning)
        return planning

    def _forget(self, planned: Planning) -> None:
        """Note that a run is played, or left to the process that takes it up."""
        self._unplayed = [each for each in self._unplayed if each is not planned]

    async def _ask_to_stop(self, run_id: int) -> None:
        """Ask the owner of the run to stop it; a run without an owner is stopped, an ended one stays so.

        Asked again for a run of another machine it is stopped, too: that one may be gone, or have got another name.
        """
        is_written = False
        while not is_written:
            summary = await self.summary(run_id)
            if summary.status not in LIVE:
                return
            is_asked = summary.status == "stopping" and is_elsewhere(summary.driver)
            status: RunStatus = "stopping" if await self._is_held(summary) and not is_asked else "stopped"
            is_written = await self._write(self._store.runs.move_on, summary, status, summary.reason)

    async def _is_held(self, summary: RunSummary) -> bool:
        if summary.id not in self._playing and any(each.run_id == summary.id for each in self._unplayed):
            # About to be played, or left by a task that was cancelled before: only the first keeps a lease.
            return await asyncio.to_thread(self._store.runs.is_leased, summary.id)
        return await asyncio.to_thread(is_held, self._store.runs, summary)

    async def _check_nobody_drives(self, summary: RunSummary) -> None:
        if summary.status in LIVE and await self._is_held(summary):
            advice = "; where that machine is gone, stop the run twice" if is_elsewhere(summary.driver) else ""
            pid, host = summary.driver.partition(" ")[0], host_of(summary.driver)
            raise ConflictError(f"run {summary.id} is played by another process: {pid} on {host}{advice}")

    def _open_executor(self, config: RunConfig) -> Executor:
        return self._open_own(config) or open_executor(config, self._local_executor, os.environ)

    def _local_executor(self, config: RunConfig) -> Executor:
        if self.shared_workers is not None and config.experiment is None:
            return self.shared_workers.lend(
                config.agent, config, self._grading_files(config.criteria), self._launcher(config)
            )
        return LocalExecutor(
            1 if config.experiment else self._settings.n_workers,  # variants are played at once, each in its own
            config.concurrency,
            warm_pool=self._warm_pool,
            launcher=self._launcher(config),
            isolation=config.isolation,
            folder=config.agent.folder,
            grading_files=self._grading_files(config.criteria),
        )

    def _launcher(self, config: RunConfig) -> Launcher:
        return launcher_of_run(self._settings, config)

    def _grading_files(self, criteria: Sequence[Criterion]) -> GradingFiles:
        return self._grading_copies.get(functions_key(criteria)) or freeze(criteria)


def taken_over_words(driver: str) -> str:
    """The process from which a run is taken over."""
    host = host_of(driver)
    who = f"{host}, which was lost" if is_elsewhere(driver) else f"a process on {host}, which is gone"
    return f"{TAKEN_OVER} {who}: trials that were under way there are played again."


def check_playable(summary: RunSummary) -> None:
    """Raise ConflictError for a run whose trials came in a file."""
    if not is_playable(summary.config):
        raise ConflictError(
            f"run {summary.id} was imported: the agent that played it is not here, so no trial can be played again; "
            "run its cases with an agent of this workspace instead"
        )


def _criteria_beside(evalset_path: str) -> tuple[Criterion, ...] | None:
    """The criteria of the file beside an eval set, which a form starts from; None without one that can be read."""
    file = find_criteria_file(Path(evalset_path)) if evalset_path else None
    with contextlib.suppress(FormatError, UsageError, OSError):
        return given_criteria(file) if file else None
    return None
