"""The runs that this process plays: taken up, driven in turn, and ended with the process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from evaldesk.desk.run_driver import RunDriver
from evaldesk.desk.run_live import LiveRun
from evaldesk.desk.run_mark import own_mark
from evaldesk.desk.scrubbing import value_scrubber
from evaldesk.engine import Executor
from evaldesk.errors import ConflictError, EvaldeskError
from evaldesk.model import RunConfig, RunStatus, TrialResult
from evaldesk.settings import Settings
from evaldesk.store import Store

log = logging.getLogger("evaldesk.runs")

MAX_RUNS_AT_ONCE = 3
CLOSE_S = 5.0
T = TypeVar("T")


@dataclass(slots=True)
class Playing:
    """A run that this process drives; `driver` is None while it waits for its turn."""

    live: LiveRun = field(default_factory=LiveRun)
    driver: RunDriver | None = None
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False


class RunPlayers:
    """`playing` are the runs of this process by id, those that wait for their turn included."""

    def __init__(self, settings: Settings, store: Store, open_executor: Callable[[RunConfig], Executor]) -> None:
        self.playing: dict[int, Playing] = {}
        self._store = store
        self._open_executor = open_executor
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaldesk-writer")
        self._scrubbed: Callable[[TrialResult], TrialResult] = value_scrubber(settings.environment)
        self._slots = asyncio.Semaphore(MAX_RUNS_AT_ONCE)
        self._is_closing = False

    async def take_up(self, run_id: int, reason: str = "", *, was: str = "") -> Playing:
        """Make the run ours before anybody can see it at rest, and play it when its turn comes.

        `was` is who drove it. Raises ConflictError when somebody else took it up meanwhile.
        """
        if run_id in self.playing:
            return self.playing[run_id]
        playing = self.playing[run_id] = Playing()
        if not await self.write(self._store.runs.claim, run_id, own_mark(), was=was):
            del self.playing[run_id]
            raise ConflictError(f"run {run_id} is played by another process, which took it up just now")
        await self.write(self._store.runs.set_status, run_id, "pending", reason, driver=own_mark())
        playing.task = asyncio.create_task(self._play_one(run_id, playing, reason), name=f"run {run_id}")
        return playing

    async def write(self, call: Callable[..., T], *args: object, **options: object) -> T:
        """Carry out a write of the store in the one thread that writes."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, functools.partial(call, *args, **options))

    async def close(self) -> None:
        """End what runs here without a verdict; the runs stay `running` and go on at the next start."""
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
        self._writer.shutdown()

    async def _play_one(self, run_id: int, playing: Playing, note: str) -> None:
        pulse = asyncio.create_task(playing.live.beat())
        try:
            async with self._slots:
                status, reason = await self._drive(run_id, playing, note)
            if not self._is_closing:
                await self.write(self._store.runs.set_status, run_id, status, " ".join(filter(None, (reason, note))))
        except asyncio.CancelledError:
            if not self._is_closing:  # it waited for its turn when it was stopped
                await self.write(self._store.runs.set_status, run_id, "stopped", note)
        except EvaldeskError as error:
            await self.write(self._store.runs.set_status, run_id, "failed", str(error))
        except Exception as error:
            log.exception("run %s broke off", run_id)
            await self.write(self._store.runs.set_status, run_id, "failed", f"Evaldesk broke off: {error!r}")
        finally:
            pulse.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pulse
            del self.playing[run_id]
            await playing.live.end()

    async def _drive(self, run_id: int, playing: Playing, note: str) -> tuple[RunStatus, str]:
        summary = await asyncio.to_thread(self._store.runs.summary, run_id)
        config = summary.config
        if playing.is_stopped or summary.status == "stopping":
            return "stopped", ""
        await self.write(self._store.runs.set_status, run_id, "running", note)
        playing.driver = RunDriver(
            run_id,
            config,
            self._store,
            self._open_executor(config),
            writer=self._writer,
            scrubbed=self._scrubbed,
            on_change=playing.live.touch,
        )
        return await playing.driver.drive()
