"""One host of a cluster: it only supervises the same worker processes as one machine has.

User code runs in the workers below it, so deadlines, replays, capture and scrubbing are those of one machine, and user
code cannot take a host down. (docs/decisions/167-hosts-of-ray.md)
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from evaldesk import __version__
from evaldesk.background_loop import BackgroundLoop
from evaldesk.engine.frames import GradeSpec, cancelled
from evaldesk.engine.host.executors import LocalExecutor
from evaldesk.engine.launch import OWN, ProcessLauncher
from evaldesk.engine.worker.attempt import Pause
from evaldesk.model import AgentRef, Criterion, TrialResult, TrialSpec
from evaldesk.wire import from_json, to_json

T = TypeVar("T")
Key: TypeAlias = tuple[int, int, int]
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
    is_shared: bool = True
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


def own_versions() -> tuple[str, str]:
    """The minor version of Python here, and that of Evaldesk."""
    return ".".join(platform.python_version_tuple()[:2]), __version__


class Host:
    """Plays and grades trials that come as JSON, each in one call."""

    def __init__(self, setup: HostSetup) -> None:
        self._setup = setup
        self._home = os.getcwd()
        self._loop = BackgroundLoop("evaldesk-host").loop  # not that of Ray, which cannot wait for processes
        self._answers: dict[Key, asyncio.Future[TrialResult]] = {}
        self._executor: LocalExecutor | None = None
        self._reading: asyncio.Task[None] | None = None

    async def play(self, spec: bytes, is_grading: bool = False) -> bytes:
        """The result of one trial."""
        return await self._here(lambda: self._play(spec, is_grading=is_grading))

    async def facts(self) -> bytes:
        """The HostFacts of this moment."""
        return await self._here(self._facts)

    async def cancel(self) -> None:
        """End the trials under way as cancelled."""
        await self._here(self._cancel)

    async def _here(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work on the loop of the workers, whichever loop asks."""

        async def waited() -> T:
            return await work()

        found: Future[T] = asyncio.run_coroutine_threadsafe(waited(), self._loop)
        return await asyncio.wrap_future(found)

    async def _play(self, line: bytes, *, is_grading: bool) -> bytes:
        executor = self._opened()
        spec: TrialSpec | GradeSpec = from_json(line, GradeSpec) if is_grading else from_json(line, TrialSpec)
        spec = moved(spec, self._setup.root, self._home)
        if executor.is_cancelled:
            return to_json(cancelled(spec))
        key = key_of(spec)
        answer = self._answers[key] = asyncio.get_running_loop().create_future()
        await executor.submit(spec)
        return to_json(await answer)

    def _opened(self) -> LocalExecutor:
        if self._executor is None:
            setup = self._setup
            self._executor = LocalExecutor(
                setup.n_workers,
                setup.concurrency,
                environment=environment_of_workers(os.environ, setup),
                launcher=ProcessLauncher(setup.python) if setup.python else OWN,
                is_shared=setup.is_shared,
            )
            self._reading = asyncio.create_task(self._read(self._executor))
        return self._executor

    async def _read(self, executor: LocalExecutor) -> None:
        async for result in executor.results():
            answer = self._answers.pop((result.run_id, result.case_index, result.trial_index), None)
            if answer and not answer.done():
                answer.set_result(result)

    async def _facts(self) -> bytes:
        python, evaldesk = own_versions()
        found = HostFacts(socket.gethostname(), python, evaldesk, self._setup.n_workers)
        if self._executor:
            found = replace(found, note=self._executor.places[0].note, pauses=self._executor.pauses)
        return to_json(found)

    async def _cancel(self) -> None:
        if self._executor:
            await self._executor.cancel()


def key_of(spec: TrialSpec | GradeSpec) -> Key:
    """The trial that is to be played or graded."""
    trial: TrialSpec | TrialResult = spec.result if isinstance(spec, GradeSpec) else spec
    return trial.run_id, trial.case_index, trial.trial_index


def environment_of_workers(own: Mapping[str, str], setup: HostSetup) -> dict[str, str]:
    """The variables of the host without those of Ray, and those that the driver gives."""
    return {name: value for name, value in own.items() if not name.startswith(OF_RAY)} | dict(setup.environment)


def moved(spec: TrialSpec | GradeSpec, root: str, home: str) -> TrialSpec | GradeSpec:
    """The same work, with the paths below `root` below `home`; the interpreter is the host's."""
    criteria = tuple(_moved_criterion(each, root, home) for each in spec.criteria)
    if isinstance(spec, GradeSpec):
        changed: Any = {"criteria": criteria}
        return GradeSpec(**{name: getattr(spec, name) for name in spec.__struct_fields__} | changed)
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
