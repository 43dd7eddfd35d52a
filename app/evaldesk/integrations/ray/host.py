"""One host of a cluster: it only supervises the same worker processes as one machine has.

User code runs in the workers below it, so deadlines, replays, capture and scrubbing are those of one machine, and user
code cannot take a host down. (decision 167)
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from evaldesk import __version__
from evaldesk.background_loop import BackgroundLoop
from evaldesk.codec import msgspec
from evaldesk.engine.driver.worker_process import Tasks
from evaldesk.engine.executors import LocalExecutor
from evaldesk.engine.failures import failure
from evaldesk.engine.frames import GradeSpec, cancelled
from evaldesk.engine.launch import OWN, ProcessLauncher
from evaldesk.engine.worker.attempt import Pause
from evaldesk.model import AgentRef, Criterion, ErrorRecord, TrialResult, TrialSpec
from evaldesk.run_options import AUTO
from evaldesk.wire import from_json, to_json

T = TypeVar("T")
Key: TypeAlias = tuple[int, int, int]
LINGER_S, MAX_TOGETHER, SHARE_TOGETHER = 0.02, 64, 2
"""A call is answered when half of the trials, or so many, have ended, and at latest so long after the first of them."""
MAX_ANSWER = 4 * 1024 * 1024
OF_RAY = ("RAY_", "SPT_NOENV", "PYTHONBREAKPOINT", "PYTHONPATH")
"""Variables, or beginnings of them, that Ray sets for its own processes."""


@dataclass(frozen=True, slots=True)
class HostSetup:
    """The workers of a host. `root` is the agent's folder on the driver's machine; its files are in the working folder.

    `environment` has the variables of the driver that the workers get; it is a secret. `python` is the interpreter of
    players there, empty for Evaldesk's own.
    """

    root: str
    n_workers: int
    concurrency: int
    isolation: str = AUTO
    python: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"HostSetup({self.n_workers} workers)"  # arguments of actors may be printed


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host as it describes itself. `python` is its minor version; `pauses` are why its trials wait."""

    name: str
    python: str
    evaldesk: str
    n_workers: int = 0
    note: str = ""
    pauses: tuple[Pause, ...] = ()


@dataclass(frozen=True, slots=True)
class HostJob:
    """A trial to play, or one to grade, with the number that its answer has."""

    number: int
    trial: TrialSpec | None = None
    grading: GradeSpec | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a trial; without one, why there is none."""

    number: int
    result: TrialResult | None = None
    error: ErrorRecord | None = None


def host_job(number: int, spec: TrialSpec | GradeSpec) -> HostJob:
    """The trial as hosts get it."""
    return HostJob(number, grading=spec) if isinstance(spec, GradeSpec) else HostJob(number, spec)


def own_versions() -> tuple[str, str]:
    """The minor version of Python here, and that of Evaldesk."""
    return ".".join(platform.python_version_tuple()[:2]), __version__


class Host:
    """Plays and grades trials that come as JSON, several in one call, and answers with several.

    A call of Ray costs as much as a trial of a quick agent. So a call brings trials and takes those that have ended
    meanwhile, of this call or of an earlier one; the latest call is the one that waits.
    """

    def __init__(self, setup: HostSetup) -> None:
        self._setup = setup
        self._home = os.getcwd()
        self._loop = BackgroundLoop("evaldesk-host").loop  # not that of Ray, which cannot wait for processes
        self._numbers: dict[Key, int] = {}
        self._result_lines: list[bytes] = []
        self._n_bytes = 0
        self._turn = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._executor: LocalExecutor | None = None

    async def exchange(self, jobs: bytes) -> bytes:
        """Take trials, a list of HostJob; gives a list of Answer, which is empty when a later call waits instead."""
        return await self._here(self._exchange(jobs))

    async def facts(self) -> bytes:
        """The HostFacts of this moment."""
        return await self._here(self._facts())

    async def cancel(self) -> None:
        """End the trials under way as cancelled."""
        await self._here(self._cancel())

    async def _here(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the loop of the workers, whichever loop asks."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _exchange(self, line: bytes) -> bytes:
        executor = self._open_executor()
        for job in from_json(line, list[HostJob]):
            self._tasks.begin(self._play(executor, job))
        self._turn.set()
        turn = self._turn = asyncio.Event()
        self._notice()
        await turn.wait()
        return self._take_results()

    async def _play(self, executor: LocalExecutor, job: HostJob) -> None:
        try:
            spec = move_paths(_spec_of(job), self._setup.root, self._home)
            self._numbers[key_of(spec)] = job.number
            if executor.is_cancelled:
                self._end(cancelled(spec))
            else:
                await executor.submit(spec)
        except Exception as error:  # of our own code: without an answer its driver would wait for ever
            self._say(Answer(job.number, error=failure(error, "engine")))

    def _end(self, result: TrialResult) -> None:
        number = self._numbers.pop((result.run_id, result.case_index, result.trial_index), None)
        if number is not None:
            self._say(Answer(number, result))

    def _say(self, answer: Answer) -> None:
        try:
            line = to_json(answer)
        except Exception as error:
            line = to_json(Answer(answer.number, error=failure(error, "engine")))
        self._result_lines.append(line)
        self._n_bytes += len(line)
        self._notice()

    def _notice(self) -> None:
        """Answer the call that waits, now or soon."""
        enough = max(1, min(len(self._numbers) // SHARE_TOGETHER, MAX_TOGETHER))
        if len(self._result_lines) >= enough or self._n_bytes >= MAX_ANSWER:
            self._turn.set()
        elif self._result_lines and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._hurry)

    def _hurry(self) -> None:
        self._timer = None
        self._turn.set()

    def _take_results(self) -> bytes:
        """The ended trials, up to MAX_ANSWER bytes; at least one, if there is one."""
        n = size = 0
        while n < len(self._result_lines) and size < MAX_ANSWER:
            size += len(self._result_lines[n])
            n += 1
        lines, self._result_lines = self._result_lines[:n], self._result_lines[n:]
        self._n_bytes -= size
        if self._timer is not None and not self._result_lines:
            self._timer.cancel()
            self._timer = None
        return b"[" + b",".join(lines) + b"]"

    def _open_executor(self) -> LocalExecutor:
        if self._executor is None:
            setup = self._setup
            self._executor = LocalExecutor(
                setup.n_workers,
                setup.concurrency,
                environment=environment_of_workers(os.environ, setup),
                launcher=ProcessLauncher(setup.python) if setup.python else OWN,
                isolation=setup.isolation,
            )
            self._tasks.begin(self._read(self._executor))
        return self._executor

    async def _read(self, executor: LocalExecutor) -> None:
        async for result in executor.results():
            self._end(result)

    async def _facts(self) -> bytes:
        python, evaldesk = own_versions()
        facts = HostFacts(socket.gethostname(), python, evaldesk, self._setup.n_workers)
        if self._executor:
            facts = replace(facts, note=self._executor.places[0].note, pauses=self._executor.pauses)
        return to_json(facts)

    async def _cancel(self) -> None:
        await self._open_executor().cancel()  # also before the first trial, which may be on its way


def _spec_of(job: HostJob) -> TrialSpec | GradeSpec:
    spec = job.trial or job.grading
    if spec is None:
        raise ValueError("no trial was sent")
    return spec


def key_of(spec: TrialSpec | GradeSpec) -> Key:
    """The trial that is to be played or graded."""
    trial: TrialSpec | TrialResult = spec.result if isinstance(spec, GradeSpec) else spec
    return trial.run_id, trial.case_index, trial.trial_index


def environment_of_workers(own: Mapping[str, str], setup: HostSetup) -> dict[str, str]:
    """The variables of the host without Ray's, with the driver's."""
    return {name: value for name, value in own.items() if not name.startswith(OF_RAY)} | dict(setup.environment)


def move_paths(spec: TrialSpec | GradeSpec, root: str, home: str) -> TrialSpec | GradeSpec:
    """The same job, with the paths below `root` below `home`; the interpreter is the host's."""
    criteria = tuple(_moved_criterion(each, root, home) for each in spec.criteria)
    if isinstance(spec, GradeSpec):
        return msgspec.structs.replace(spec, criteria=criteria)
    return replace(spec, agent=_moved_agent(spec.agent, root, home), criteria=criteria)


def _moved_agent(ref: AgentRef, root: str, home: str) -> AgentRef:
    return replace(ref, root=_path(ref.root, root, home), folder=_path(ref.folder, root, home), python="")


def _moved_criterion(criterion: Criterion, root: str, home: str) -> Criterion:
    place = criterion.options.get("root")
    if not isinstance(place, str):
        return criterion
    return replace(criterion, options={**criterion.options, "root": _path(place, root, home)})


def _path(path: str, root: str, home: str) -> str:
    if not root or not (path == root or path.startswith(root.rstrip(os.sep) + os.sep)):
        return path
    return os.path.normpath(os.path.join(home, os.path.relpath(path, root)))
