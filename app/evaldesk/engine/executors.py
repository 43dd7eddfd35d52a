"""Executors carry out trials: their kinds by name, where runs may be played, how they get trials, and the local one.

`[executors.NAME]` of evaldesk.toml names one.
A kind of a package is the entry point `evaldesk.executors` of its name, which leads to an ExecutorKind.
(decision 166)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from evaldesk.agents.containers import container_client
from evaldesk.agents.env_files import env_variables
from evaldesk.engine.driver.grading_files import GradingFiles, freeze
from evaldesk.engine.driver.pool import WorkerPool
from evaldesk.engine.driver.simulated_users import SimulatedUsers
from evaldesk.engine.driver.worker_process import WarmPool, WorkerProcess
from evaldesk.engine.failures import case_problem
from evaldesk.engine.frames import GradeSpec, cancelled, grade_spec, unplayed
from evaldesk.engine.launch import OWN, Launcher, check_sandbox
from evaldesk.engine.worker.attempt import Pause, active
from evaldesk.errors import AgentError, EvaldeskError, UsageError
from evaldesk.model import ErrorRecord, RunConfig, TrialResult, TrialSpec, trial_verdict
from evaldesk.model.conclusion import counted
from evaldesk.model.run import ExecutorConfig, Place
from evaldesk.registry import Registry
from evaldesk.run_options import AUTO, BY_NAME, SANDBOX, SHARING

MAX_LOCAL = 500
MOST_AT_ONCE = int(BY_NAME["concurrency"].high)

OWN_VARIABLES = "EVALDESK_OWN_VARIABLES"
"""Names the variables that a run file brings to its driver, separated by blanks: hosts get them, too."""


class Executor(Protocol):
    """Carries out trials. Every submitted spec has exactly one result, also after a failure.

    `pauses` are the known reasons why the models of its trials wait. `places` are where its trials are played at this
    moment; none in the caller's own process. `end_reason` says why it takes no more trials though
    nobody cancelled it, as when every host of a cluster is gone; those under way have ended as cancelled.
    `grading_changes` name the files that score trials and have changed on the disk since they were copied.
    """

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called: a spec submitted from now on ends cancelled."""

    @property
    def end_reason(self) -> str:
        """Why it takes no more trials; empty while it does, and where it was cancelled."""

    @property
    def pauses(self) -> Sequence[Pause]:
        """The reasons why trials under way wait."""

    @property
    def places(self) -> Sequence[Place]:
        """Where trials are played at this moment."""

    @property
    def grading_changes(self) -> Sequence[str]:
        """The changed files that score trials, each with the time of its change; reads the disk."""

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial to play and grade, or a played one to grade again; waits for room."""

    def results(self) -> AsyncIterator[TrialResult]:
        """Results in the order in which they come, until `close`; for one reader."""

    async def cancel(self) -> None:
        """End all trials under way as cancelled; returns when they have ended."""

    async def close(self) -> None:
        """Give back threads and processes; trials still under way end cancelled."""


OpenExecutor = Callable[[RunConfig], Executor]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine where an executor may play. `words` describe it; for `trouble` it plays no trial."""

    name: str
    words: str
    trouble: str = ""


Look = Callable[[RunConfig], Awaitable[tuple[str, Sequence[Node]]]]


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """A kind of executor.

    - `check` raises UsageError for a run that it cannot play, before anything is started; its options are checked, too.
    - `open` gives the executor of a run; the second argument is the environment of the driver. None is this machine.
    - `words` are the place in a sentence: `Ray at 10.0.0.4:6379`.
    - `most_at_once` bounds the trials at once.
    - `has_own_driver`: a run of the kind is played by a process of its own, never by the server of a desk.
    - `look` gives what is there in a sentence, and each machine; nothing is played. Raises EvaldeskError.
    """

    check: Callable[[RunConfig], None]
    words: Callable[[ExecutorConfig], str]
    open: Callable[[RunConfig, Mapping[str, str]], Executor] | None = None
    most_at_once: int = MOST_AT_ONCE
    has_own_driver: bool = False
    look: Look | None = None


EXECUTORS = Registry(
    "kind of executor",
    "evaldesk.executors",
    {"local": "evaldesk.engine.executors:LOCAL", "ray": "evaldesk.integrations.ray.kind:RAY"},
)


def kind_of(executor: ExecutorConfig) -> ExecutorKind:
    """The kind of the executor. Raises UsageError for an unknown kind."""
    kind = EXECUTORS.load(executor.kind) if executor.kind in EXECUTORS else None
    if not isinstance(kind, ExecutorKind):
        kinds = ", ".join(EXECUTORS)
        where = f"[executors.{executor.name}]"
        raise UsageError(f"{where}: kind is one of {kinds}, not {executor.kind!r}", field="on")
    return kind


def has_own_driver(executor: ExecutorConfig) -> bool:
    """Whether runs of the executor are played by a process of their own; a kind that nobody brings says nothing."""
    try:
        return kind_of(executor).has_own_driver
    except EvaldeskError:
        return False


def place_of(executor: ExecutorConfig) -> str:
    """The place in words; of a kind that nobody brings, its name."""
    try:
        return kind_of(executor).words(executor)
    except EvaldeskError:
        return f"{executor.name} ({executor.kind})"


def check_place(config: RunConfig) -> None:
    """Raise UsageError for an agent or commands with an image where no container can be started, or would record.

    So does an isolation that needs an image, and bounds of a trial that has no process of its own.
    """
    container = config.agent.container
    check_isolation(config)
    check_executor(config)
    if config.agent.commands is not None:
        container_client(config.agent.commands, os.environ)
    if container is None:
        return
    if config.recording.mode != "off":
        raise UsageError(
            f"recording = {config.recording.mode!r} needs a folder of this machine, which {container.words} does not "
            "see; leave recording off, or image out",
            field="recording",
        )
    container_client(container, os.environ)


def check_isolation(config: RunConfig) -> None:
    """Raise UsageError for trials in containers without an image, and for bounds of processes that trials share."""
    container = config.agent.container
    if config.isolation == "container" and container is None:
        raise UsageError(
            "isolation = 'container' needs an image: name one by image in evaldesk.toml or by --image",
            field="isolation",
        )
    if config.isolation == SANDBOX:
        if container is not None:
            raise UsageError(
                "isolation = 'sandbox' is for players of this machine; with an image use isolation = 'container'",
                field="isolation",
            )
        check_sandbox()
    bounds = (("memory_mib", config.limits.memory_mib), ("processes", config.limits.processes))
    for name, limit in bounds:
        if limit is not None and container is not None:
            raise UsageError(f"{name} bounds a process; write memory and pids under [container]", field=name)
        if limit is not None and config.is_shared:
            raise UsageError(f"{name} bounds a trial with a process of its own; add isolation = 'process'", field=name)


def check_executor(config: RunConfig) -> None:
    """Raise UsageError for a run that its executor cannot play."""
    kind = kind_of(config.executor)
    if config.concurrency > kind.most_at_once:
        where = config.executor.name or "this machine"
        raise UsageError(
            f"trials at once: {where} plays at most {kind.most_at_once:,}, not {config.concurrency:,}",
            field="concurrency",
        )
    kind.check(config)


def open_executor(config: RunConfig, open_local: OpenExecutor, environment: Mapping[str, str]) -> Executor:
    """The executor of a run; `open_local` opens that of this machine."""
    kind = kind_of(config.executor)
    return kind.open(config, environment) if kind.open else open_local(config)


def _check_local(config: RunConfig) -> None:
    unknown = [*config.executor.options]
    if unknown:
        raise UsageError(f"[executors.{config.executor.name}]: unknown key {unknown[0]!r}", field="on")


HERE = "this machine"
LOCAL = ExecutorKind(_check_local, lambda _: HERE, most_at_once=MAX_LOCAL)


async def drive(
    specs: Iterable[TrialSpec | GradeSpec], executor: Executor, concurrency: int
) -> AsyncGenerator[TrialResult]:
    """One result for every spec that was handed out, in the order in which they end.

    A pool, not waves: the next trial begins when one ends, also while the caller is busy with a result. Once the
    executor is cancelled nothing more is handed out.
    """
    async with (
        aclosing(_each(specs)) as spec_stream,
        aclosing(drive_batches(spec_stream, executor, concurrency)) as batches,
    ):
        async for batch in batches:
            for result in batch:
                yield result


async def drive_batches(
    specs: AsyncIterator[TrialSpec | GradeSpec],
    executor: Executor,
    concurrency: int,
    on_end: Callable[[TrialResult], None] = lambda _: None,
) -> AsyncGenerator[list[TrialResult]]:
    """As `drive`, for specs that are read first; gives the trials that ended meanwhile together, to be stored together.

    No batch is empty. `on_end` is told of each when it ends, before another begins.
    """
    driver = _Driver(specs, executor, concurrency, on_end)
    task = asyncio.create_task(driver.run())
    try:
        while batch := await driver.take(task):
            yield batch
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Driver:
    def __init__(
        self,
        specs: AsyncIterator[TrialSpec | GradeSpec],
        executor: Executor,
        concurrency: int,
        on_end: Callable[[TrialResult], None],
    ) -> None:
        self._specs = specs
        self._executor = executor
        self._concurrency = concurrency
        self._on_end = on_end
        self._ended_trials: list[TrialResult] = []
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_begun = asyncio.Event()
        self._n_under_way = 0

    async def run(self) -> None:
        """Hand out, and collect meanwhile, until nothing is under way: the next spec may wait for another run."""
        handing_out = asyncio.create_task(self._hand_out())
        try:
            results = self._executor.results()
            while self._n_under_way or not handing_out.done():
                if not self._n_under_way:
                    self._has_begun.clear()
                    await self._has_begun.wait()
                    continue
                result = await _next_result(results, handing_out)
                if result is None and self._executor.is_cancelled:
                    return  # it was closed
                if result is None:
                    trials = counted(self._n_under_way, "trial")
                    raise EvaldeskError(f"the executor ended while {trials} had no result")
                self._on_end(result)
                self._ended_trials.append(result)
                self._n_under_way -= 1
                self._has_room.set()
                self._has_news.set()
            await handing_out
        finally:
            handing_out.cancel()
            await asyncio.gather(handing_out, return_exceptions=True)
            self._has_news.set()

    async def take(self, task: asyncio.Task[None]) -> list[TrialResult]:
        """The trials that ended since the last call; waits for at least one, empty at the end."""
        while not self._ended_trials and not task.done():
            self._has_news.clear()
            await self._has_news.wait()
        batch, self._ended_trials = self._ended_trials, []
        return batch

    async def _hand_out(self) -> None:
        """Submit specs while fewer than the trials at once are under way."""
        try:
            while not self._executor.is_cancelled:
                if self._n_under_way >= self._concurrency:
                    self._has_room.clear()
                    await self._has_room.wait()
                    continue
                spec = await anext(self._specs, None)
                if spec is None:
                    return
                self._n_under_way += 1
                self._has_begun.set()
                await self._executor.submit(spec)
        finally:
            self._has_begun.set()


async def _next_result(results: AsyncIterator[TrialResult], handing_out: asyncio.Task[None]) -> TrialResult | None:
    """The next result, None at their end. Raises the error by which handing out ended: no result would come of it."""
    following = asyncio.ensure_future(anext(results, None))
    try:
        if not handing_out.done():
            await asyncio.wait((following, handing_out), return_when=asyncio.FIRST_COMPLETED)
        if handing_out.done() and not following.done():
            handing_out.result()
        return await following
    finally:
        following.cancel()


async def _each(specs: Iterable[TrialSpec | GradeSpec]) -> AsyncGenerator[TrialSpec | GradeSpec]:
    for spec in specs:
        yield spec


CANCEL_GRACE_S = 4.0
GRADED_AT_ONCE = 8
SLOW_GRADER_S = 0.2
"""How long a grader with work may answer nothing before another is started, which takes about as long."""


class LocalExecutor:
    """Carries out up to `concurrency` trials at once, in `n_workers` players and as many graders.

    A player has the agent and the user's side of a case; a grader has the expectations and the metrics, and never the
    agent. The process of this executor hands the transcript from one to the other, and checks what both answer. Players
    come to be by `launcher`, graders always on Evaldesk's own interpreter. `players` are up already and belong to this
    executor from now on. By `isolation` trials share players, or each has its own, up to `concurrency` of them.
    Graders get the variables of the `.env` of the agent in `folder` as they are now, for the keys of judges. They score
    by the code in `grading_files`; without them it is copied before the first trial begins.
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
        isolation: str = AUTO,
        folder: str = "",
        grading_files: GradingFiles | None = None,
    ) -> None:
        self.is_cancelled = False
        self.end_reason = ""
        self._warm_pool = warm_pool
        run_environment = os.environ if environment is None else environment
        workers = partial(WorkerPool, concurrency=concurrency, environment=run_environment)
        self._users = SimulatedUsers(run_environment, launcher)
        self._players = workers(
            n_workers if isolation in SHARING else concurrency,
            on_result=self._hand_to_graders,
            warm_pool=warm_pool if launcher is OWN else None,
            purpose="player",
            launcher=launcher,
            ready=players,
            isolation=isolation,
            users=self._users,
        )
        self._graders = workers(
            n_workers,
            on_result=self._graded,
            warm_pool=warm_pool,
            purpose="grader",
            n_before_next=GRADED_AT_ONCE,
            slow_after_s=SLOW_GRADER_S,
        )
        self._graders.grading_files = grading_files
        with suppress(AgentError):  # of a file that is not read; each player says so
            self._users.variables = self._graders.variables = env_variables(folder, run_environment)
        self._room = asyncio.Semaphore(concurrency)
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()
        self._check: tuple[GradeSpec, asyncio.Future[ErrorRecord | None]] | None = None
        self._is_closed = False

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the players and graders that are up."""
        return [*self._players.pids, *self._users.pids, *self._graders.pids]

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
        return active([*self._players.pauses, *self._users.pauses, *self._graders.pauses])

    @property
    def grading_changes(self) -> list[str]:
        """The changed files that score trials, each with the time of its change; reads the disk."""
        return self._graders.grading_files.changes() if self._graders.grading_files else []

    @property
    def places(self) -> tuple[Place, ...]:
        """This machine, with the players that are up."""
        return (self._players.place,)

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial once fewer than `concurrency` are under way. Raises UsageError after `close`."""
        await self._room.acquire()
        if self._is_closed:
            raise UsageError("the executor is closed and takes no trial any more")
        if self._graders.grading_files is None and spec.criteria:
            self._graders.grading_files = await asyncio.to_thread(freeze, spec.criteria)
        if isinstance(spec, GradeSpec):
            self._graders.submit(spec)
            return
        try:
            problem = case_problem(spec.case) or await self._function_problem(spec)
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
        await self._users.close()
        self._is_closed = True
        if self._warm_pool:
            self._warm_pool.refill()
        self._results.put_nowait(None)

    async def release(self) -> None:
        """End `results` for their reader; the workers stay for the next run."""
        await self._idle()
        results, self._results = self._results, asyncio.Queue()
        results.put_nowait(None)

    async def _idle(self) -> None:
        await self._players.idle.wait()
        await self._graders.idle.wait()

    def _hand_to_graders(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        """Hand a played trial to the graders; an unfinished one has nothing to grade."""
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
