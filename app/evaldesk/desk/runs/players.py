"""The runs that this process plays, each by a driver in its turn: their leases, their ends, and their watchers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakValueDictionary

from evaldesk.desk.experiments.turns import Turns, VariantTurns
from evaldesk.desk.process_owner import current_owner
from evaldesk.desk.runs.driver import RunDriver, RunWriter, grading_sentence
from evaldesk.desk.runs.gates.conclusion import Ending
from evaldesk.desk.runs.rescoring import as_handed_out
from evaldesk.engine import Executor
from evaldesk.engine.executors import has_own_driver
from evaldesk.errors import ConflictError, EvaldeskError, NotFoundError, WorkspaceError
from evaldesk.model import RunConfig
from evaldesk.model.run import ExperimentPart, Place, is_more, is_news
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import AUTO
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.runs.planning import Planning
from evaldesk.wire import result_scrubber

log = logging.getLogger("evaldesk.runs")

RENEW_S = 5.0
LOOK_S = 0.5
CLOSE_S = 5.0
TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Tick:
    """A snapshot of a run. Its watchers share rendered blocks in `cache`, as long as one of them holds them."""

    number: int
    is_last: bool = False
    cache: WeakValueDictionary[object, Any] = field(default_factory=WeakValueDictionary)


class LiveRun:
    """Turns many changes into few ticks, and wakes every watcher at each."""

    def __init__(self) -> None:
        self.tick = Tick(0)
        self._is_dirty = asyncio.Event()
        self._tick_condition = asyncio.Condition()

    def touch(self) -> None:
        """Something changed."""
        self._is_dirty.set()

    async def beat(self) -> None:
        """Tick while there are changes; runs as a task beside the driver."""
        while True:
            await self._is_dirty.wait()
            self._is_dirty.clear()
            await self._move(is_last=False)
            await asyncio.sleep(TICK_S)

    async def end(self) -> None:
        """The last tick: the run is over, and its watchers leave."""
        await self._move(is_last=True)

    async def ticks(self) -> AsyncIterator[Tick]:
        """The current snapshot at once, then every later one; slow watchers skip some."""
        tick = self.tick
        yield tick
        while not tick.is_last:
            async with self._tick_condition:
                await self._tick_condition.wait_for(lambda last=tick: self.tick is not last)  # type: ignore[misc]
            tick = self.tick
            yield tick

    async def _move(self, *, is_last: bool) -> None:
        async with self._tick_condition:
            self.tick = Tick(self.tick.number + 1, is_last, self.tick.cache)
            self._tick_condition.notify_all()


@dataclass(slots=True)
class Playing:
    """A run that this process drives; `driver` is None while it waits for its turn. `max_cost` is in US dollars.

    `max_cost` is what is left of the limit of a command with several runs; else that of the run's gates counts. `lease`
    is the one that this process has of it; `planning` plans its later trials. `unstored` says why its end could not be
    stored, should that be given up; nothing cancels a run that `is_ending`. A `variant` of an experiment has the
    `turns` of that one.
    """

    live: LiveRun = field(default_factory=LiveRun)
    driver: RunDriver | None = None
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False
    is_ending: bool = False
    lease: int = 1
    max_cost: float | None = None
    unstored: str = ""
    planning: Planning | None = None
    turns: Turns | None = None
    variant: int = 0


class RunPlayers:
    """`playing` are the runs of this process by id, waiting ones included.

    `check` raises TrustError for a run that may not be played: its row may have changed since it was taken up.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        open_executor: Callable[[RunConfig], Executor],
        check: Callable[[RunSummary], None] = lambda _: None,
    ) -> None:
        self.playing: dict[int, Playing] = {}
        self.writer = RunWriter()
        self._store = store
        self._open_executor = open_executor
        self._check = check
        self._scrubbed = result_scrubber(settings.environment)
        self._slots = asyncio.Semaphore(settings.n_runs_at_once)
        self._turns: WeakValueDictionary[int, Turns] = WeakValueDictionary()
        self._is_closing = False

    @cached_property
    def owner(self) -> str:
        """The name of this process in the database, which stays when the machine gets another name."""
        return current_owner()

    def play(
        self,
        run_id: int,
        note: str = "",
        max_cost: float | None = None,
        planning: Planning | None = None,
        part: ExperimentPart | None = None,
    ) -> Playing:
        """Play a run that is ours when its turn comes; `note` becomes part of its reason. It is planned meanwhile.

        A `part` of an experiment begins no trial before the others that are expected by then.
        """
        playing = self.playing.setdefault(run_id, Playing(max_cost=max_cost, planning=planning))
        if part:
            playing.turns, playing.variant = self.expect(part), part.variant_index
        playing.task = asyncio.create_task(self._play_one(run_id, playing, note), name=f"run {run_id}")
        return playing

    def expect(self, part: ExperimentPart) -> Turns:
        """Let the other variants of an experiment wait for this one, which is about to be played."""
        turns = self._turns.get(part.experiment_id)
        if turns is None:
            turns = self._turns[part.experiment_id] = Turns()
        turns.expect(part.variant_index)
        return turns

    async def take_up(self, summary: RunSummary, note: str = "") -> Playing:
        """Make a run that rests ours before anybody can see it at rest again, and play it.

        Raises ConflictError when it is not any more as `summary` has it.
        """
        if summary.id in self.playing:
            return self.playing[summary.id]
        playing = self.playing[summary.id] = Playing(lease=summary.lease + 1)
        part, is_ours = summary.config.experiment, False
        turns = self.expect(part) if part else None
        try:
            is_ours = await self.writer.write(self._store.runs.move_on, summary, "pending", note, driver=self.owner)
        finally:
            if not is_ours:
                del self.playing[summary.id]
                if turns and part:
                    turns.leave(part.variant_index)
                await playing.live.end()
        if not is_ours:
            raise ConflictError(f"run {summary.id} was taken up, stopped or deleted by another process just now")
        return self.play(summary.id, note, part=part)

    async def close(self) -> None:
        """End the runs of this process without a verdict; they stay `running` and go on at the next start."""
        self._is_closing = True
        tasks = []
        for playing in list(self.playing.values()):  # each takes itself out when it ends
            if playing.driver:
                await playing.driver.cancel()
            elif playing.task:
                playing.task.cancel()
            if playing.task:
                tasks.append(playing.task)
        if tasks:
            _, hanging = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in hanging:  # it waits for a disk that takes nothing: its trials are played again
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.writer.close()

    async def _play_one(self, run_id: int, playing: Playing, note: str) -> None:
        pulse = asyncio.create_task(playing.live.beat())
        renewing = asyncio.create_task(self._renew(run_id, playing))
        plan_task = asyncio.create_task(self._plan(playing))
        try:
            ending = await self._ending(run_id, playing, note)
            playing.is_ending = True
            await plan_task  # a run that ends, or is closed, has all of its trials
            if not self._is_closing:
                with contextlib.suppress(NotFoundError):  # it was deleted while it waited for its turn
                    end = partial(self._store.runs.end, lease=playing.lease, stop=ending.stop)
                    if not await self.writer.write_with_retry(end, run_id, ending.status, ending.reason):
                        playing.unstored = f"run {run_id} was taken over by another process, which plays it on"
                        log.warning(playing.unstored)
        except WorkspaceError as error:
            playing.unstored = str(error)
        finally:
            for task in (pulse, renewing, plan_task):
                task.cancel()
            await asyncio.gather(pulse, renewing, plan_task, return_exceptions=True)
            del self.playing[run_id]
            if playing.turns:
                playing.turns.leave(playing.variant)
            await playing.live.end()

    async def _plan(self, playing: Playing) -> None:
        """Plan the trials that are not planned yet; a run that was deleted or taken meanwhile has no more."""
        planning = playing.planning
        with contextlib.suppress(ConflictError):
            while planning and not planning.is_done:
                await self.writer.write_with_retry(planning.step)
                playing.live.touch()

    async def _renew(self, run_id: int, playing: Playing) -> None:
        """Keep the lease of a run while it is played, and tell where: later, or at once when a place came or was lost.

        Once another process has the lease, no more is played here.
        """
        reported_places: Sequence[Place] = ()
        renewed_at, is_refused = time.monotonic(), False
        while True:
            await asyncio.sleep(min(LOOK_S, RENEW_S))
            places = playing.driver.places if playing.driver else ()
            if time.monotonic() - renewed_at < RENEW_S and not is_news(reported_places, places):
                continue
            reported_places, renewed_at = places, time.monotonic()
            try:
                if await self.writer.write(self._store.runs.renew, run_id, playing.lease, places):
                    is_refused = False
                    continue
            except WorkspaceError as error:  # tried again, after the lease is over too, until another takes the run
                if not is_refused:
                    log.warning("run %s: its lease was not renewed, which is tried again: %s", run_id, error)
                is_refused = True
                continue
            playing.is_stopped = True
            if playing.driver:
                await playing.driver.cancel()
            return

    async def _ending(self, run_id: int, playing: Playing, note: str) -> Ending:
        """Play the run when its turn comes; how that ended, and why."""
        try:
            async with playing.turns.slot(self._slots) if playing.turns else self._slots:
                ending = await self._drive(run_id, playing, note)
            return replace(ending, reason=" ".join(filter(None, (ending.reason, note))))
        except asyncio.CancelledError:  # it waited for its turn when it was stopped
            return Ending("stopped", note)
        except EvaldeskError as error:
            return Ending("failed", str(error))
        except Exception as error:
            log.exception("run %s broke off", run_id)
            return Ending("failed", f"Evaldesk broke off: {error!r}")

    async def _drive(self, run_id: int, playing: Playing, note: str) -> Ending:
        summary = await asyncio.to_thread(self._store.runs.summary, run_id)
        config = summary.config
        await asyncio.to_thread(self._check, summary)
        is_wanted = not playing.is_stopped and summary.status != "stopping" and summary.lease == playing.lease
        if not (is_wanted and await self.writer.write_with_retry(self._store.runs.move_on, summary, "running", note)):
            return Ending("stopped")
        n_unplanned = 0 if playing.planning else await asyncio.to_thread(self._store.runs.n_unplanned, run_id)
        if n_unplanned:
            return Ending("failed", await self._cut(summary, n_unplanned))
        if config.source_run_id is not None:
            config = as_handed_out(config)
        limit = config.gates.max_cost if playing.max_cost is None else playing.max_cost
        turns = await self._opened_turns(playing, config)
        executor = self._open_executor(await self._as_observed(run_id, config))
        playing.driver = RunDriver(
            run_id,
            config,
            self._store,
            executor,
            writer=self.writer,
            scrubbed=self._scrubbed,
            on_change=playing.live.touch,
            max_cost=None if is_more(summary.cost, limit) else limit,  # resumed above it: a person wants the rest
            cost_so_far=summary.cost,
            tells_cost=not summary.is_cost_unknown,  # resumed without a known cost: a person wants the rest, too
            lease=playing.lease,
            planning=playing.planning,
            stop_rule=summary.stop_rule,
            turns=turns,
        )
        try:
            ending = await playing.driver.drive()
            changes = await asyncio.to_thread(lambda: executor.grading_changes)
            return replace(ending, reason=" ".join(filter(None, (ending.reason, grading_sentence(changes)))))
        except EvaldeskError as error:
            if summary.counts.done and has_own_driver(config.executor):  # its cluster is away: the rest is for later
                return Ending("stopped", str(error))
            raise

    async def _opened_turns(self, playing: Playing, config: RunConfig) -> VariantTurns | None:
        """The turns of a variant, with the plan of its experiment; None outside of one."""
        turns, part = playing.turns, config.experiment
        if turns is None or part is None:
            return None
        from evaldesk.desk.experiments.results import begun_so_far, worse_variants  # most runs are no variants

        load = partial(asyncio.to_thread, begun_so_far, self._store, part.experiment_id)
        await turns.open(load, partial(self.writer.write_with_retry, worse_variants, self._store, part.experiment_id))
        return VariantTurns(turns, part.variant_index, config.n)

    async def _as_observed(self, run_id: int, config: RunConfig) -> RunConfig:
        """The run with a process for each trial where an earlier one saw its agent hold an object of one event loop.

        An agent without a version is observed anew.
        """
        if config.isolation != AUTO or not config.agent_version or config.source_run_id is not None:
            return config
        is_bound = await self.writer.write_with_retry(self._store.runs.known_loop_bound, run_id)
        return replace(config, isolation="process") if is_bound else config

    async def _cut(self, summary: RunSummary, n_unplanned: int) -> str:
        """Reduce a run whose planning broke off with its process to the planned cases; gives the sentence for it."""
        await self.writer.write_with_retry(self._store.runs.cut_to_planned, summary.id)
        share = f"{summary.n_cases - n_unplanned:,} of {summary.n_cases:,} cases are in it"
        return f"Its process ended while the run was planned: {share}. Resume it to play these, or start the run anew."
