"""The runs that this process plays: taken up as their owner, driven in turn, and ended with the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from evaldesk.desk.runs.driver import LiveRun, RunDriver, RunWriter
from evaldesk.engine import Executor
from evaldesk.errors import ConflictError, EvaldeskError, NotFoundError, WorkspaceError
from evaldesk.model import RunConfig, RunStatus
from evaldesk.model.stored import RunSummary
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.wire import result_scrubber

log = logging.getLogger("evaldesk.runs")

MAX_RUNS_AT_ONCE = 3
CLOSE_S = 5.0


@dataclass(slots=True)
class Playing:
    """A run that this process drives; `driver` is None while it waits for its turn. `max_cost` is in US dollars.

    `unstored` says why its end could not be stored, should that be given up.
    """

    live: LiveRun = field(default_factory=LiveRun)
    driver: RunDriver | None = None
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False
    max_cost: float | None = None
    unstored: str = ""


class RunPlayers:
    """`playing` are the runs of this process by id, those that wait for their turn included."""

    def __init__(self, settings: Settings, store: Store, open_executor: Callable[[RunConfig], Executor]) -> None:
        self.playing: dict[int, Playing] = {}
        self.writer = RunWriter()
        self._store = store
        self._open_executor = open_executor
        self._scrubbed = result_scrubber(settings.environment)
        self._slots = asyncio.Semaphore(MAX_RUNS_AT_ONCE)
        self._is_closing = False

    def play(self, run_id: int, note: str = "", max_cost: float | None = None) -> Playing:
        """Play a run that is ours when its turn comes; `note` becomes part of its reason."""
        playing = self.playing.setdefault(run_id, Playing(max_cost=max_cost))
        playing.task = asyncio.create_task(self._play_one(run_id, playing, note), name=f"run {run_id}")
        return playing

    async def take_up(self, seen: RunSummary, note: str = "") -> Playing:
        """Make a run that rests ours before anybody can see it at rest again, and play it.

        Raises ConflictError when it is not any more as it was `seen`.
        """
        if seen.id in self.playing:
            return self.playing[seen.id]
        playing = self.playing[seen.id] = Playing()
        is_ours = False
        try:
            is_ours = await self.writer.write(self._store.runs.move_on, seen, "pending", note, driver=current_owner())
        finally:
            if not is_ours:
                del self.playing[seen.id]
                await playing.live.end()
        if not is_ours:
            raise ConflictError(f"run {seen.id} was taken up, stopped or deleted by another process just now")
        return self.play(seen.id, note)

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
        try:
            status, reason = await self._outcome(run_id, playing, note)
            if not self._is_closing:
                with contextlib.suppress(NotFoundError):  # it was deleted while it waited for its turn
                    await self.writer.write_with_retry(self._store.runs.set_status, run_id, status, reason)
        except WorkspaceError as error:
            playing.unstored = str(error)
        finally:
            pulse.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pulse
            del self.playing[run_id]
            await playing.live.end()

    async def _outcome(self, run_id: int, playing: Playing, note: str) -> tuple[RunStatus, str]:
        """Play the run when its turn comes; how that ended, and why."""
        try:
            async with self._slots:
                status, reason = await self._drive(run_id, playing, note)
            return status, " ".join(filter(None, (reason, note)))
        except asyncio.CancelledError:  # it waited for its turn when it was stopped
            return "stopped", note
        except EvaldeskError as error:
            return "failed", str(error)
        except Exception as error:
            log.exception("run %s broke off", run_id)
            return "failed", f"Evaldesk broke off: {error!r}"

    async def _drive(self, run_id: int, playing: Playing, note: str) -> tuple[RunStatus, str]:
        seen = await asyncio.to_thread(self._store.runs.summary, run_id)
        config = seen.config
        is_wanted = not playing.is_stopped and seen.status != "stopping"
        if not (is_wanted and await self.writer.write_with_retry(self._store.runs.move_on, seen, "running", note)):
            return "stopped", ""
        playing.driver = RunDriver(
            run_id,
            config,
            self._store,
            self._open_executor(config),
            writer=self.writer,
            scrubbed=self._scrubbed,
            on_change=playing.live.touch,
            max_cost=playing.max_cost,
        )
        return await playing.driver.drive()


def current_owner() -> str:
    """This process, as the driver of a run."""
    return f"{os.getpid()} {socket.gethostname()} {_started(os.getpid())}"


def is_owner_alive(owner: str) -> bool:
    """Whether the process `owner` still runs. Another machine's process counts as alive: we cannot see it."""
    pid, _, rest = owner.partition(" ")
    host, _, started = rest.rpartition(" ")
    if not pid.isdecimal() or not host:
        return False
    if host != socket.gethostname():
        return True
    return _exists(int(pid)) and not _is_zombie(int(pid)) and _started(int(pid)) in {started, "-"}


def host_of(owner: str) -> str:
    """The machine of the process; empty for a text that names no process."""
    return owner.partition(" ")[2].rpartition(" ")[0]


def is_elsewhere(owner: str) -> bool:
    """Whether the process is on another machine, so that its life cannot be checked here."""
    return host_of(owner) not in ("", socket.gethostname())


def _exists(pid: int) -> bool:
    if sys.platform == "win32":  # os.kill would end the process there
        return pid == os.getpid()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_zombie(pid: int) -> bool:
    """Whether the process is over and its exit code was not collected, as often happens in containers."""
    return _stat(pid)[:1] == ["Z"]


def _started(pid: int) -> str:
    """When the process started, in ticks since boot, so that a reused pid is not mistaken; `-` where unknown."""
    return (_stat(pid)[19:20] or ["-"])[0]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, state first; none where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return []
    return stat.rpartition(")")[2].split()
