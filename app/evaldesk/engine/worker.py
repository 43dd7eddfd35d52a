"""The worker process: `python -m evaldesk.engine.worker PARENT_PID PURPOSE`, spawned by the parent, ended by its death.

Its main loop only moves frames and watches deadlines; the attempts are in lanes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from evaldesk.collecting import no_collecting, settle
from evaldesk.engine.attempt import Attempt
from evaldesk.engine.channel import Channel, open_channel, read_frames
from evaldesk.engine.chat_work import DescribeWork, TurnWork
from evaldesk.engine.frames import Beat, Describe, Grade, Play, Ready, Stop, Talk, frame_to_worker
from evaldesk.engine.lanes import Lane
from evaldesk.engine.output import capture_output
from evaldesk.engine.pauses import still
from evaldesk.engine.process_guard import end_with_group, guard_process, rearm_guard, take_over_pipes
from evaldesk.engine.work import GradeWork, TrialWork, Work

BEAT_S = 0.5
TICK_S = 0.1
GRACE_S = 1.0


@dataclass(slots=True)
class _Job:
    """A piece of work in its lane; `give_up_at` is set when it was told to stop."""

    work: Work
    lane: Lane
    give_up_at: float | None = None

    @property
    def attempt(self) -> Attempt:
        return self.work.attempt


class Worker:
    """The jobs of this process, by key, and the lanes that are free."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[int, _Job] = {}
        self._free: list[Lane] = []
        self._is_ticking = False

    def receive(self, line: bytes) -> None:
        """Act on a frame of the parent."""
        frame = frame_to_worker(line)
        if isinstance(frame, Stop):
            self._stop(frame.key, "cancelled")
        else:
            self._begin(frame)

    def beat(self) -> None:
        """Tell the parent that this loop is alive, again and again."""
        rearm_guard()
        self._channel.send(self.moment())
        self._loop.call_later(BEAT_S, self.beat)

    def moment(self) -> Beat:
        """How the jobs stand at this moment."""
        left = tuple((key, job.attempt.seconds_left) for key, job in self._jobs.items())
        return Beat(left, still(job.attempt.pause for job in self._jobs.values()))

    def _begin(self, frame: Play | Grade | Talk | Describe) -> None:
        job = _Job(self._work(frame), self._lane())
        self._jobs[frame.key] = job
        job.lane.start(job.work.run(), partial(self._done_in_lane, frame.key))
        if not self._is_ticking:
            self._is_ticking = True
            self._loop.call_later(TICK_S, self._tick)

    def _work(self, frame: Play | Grade | Talk | Describe) -> Work:
        if isinstance(frame, Play):
            return TrialWork(frame)
        if isinstance(frame, Grade):
            return GradeWork(frame)
        if isinstance(frame, Talk):
            return TurnWork(frame, self._channel.send)
        return DescribeWork(frame)

    def _lane(self) -> Lane:
        while self._free:
            lane = self._free.pop()
            if lane.is_usable:
                return lane
        return Lane()

    def _done_in_lane(self, key: int, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        frame = cast("bytes", task.result()) if not task.cancelled() and not error else None
        self._loop.call_soon_threadsafe(self._done, key, frame, error)

    def _done(self, key: int, frame: bytes | None, error: BaseException | None) -> None:
        job = self._jobs.pop(key, None)
        if job is None:
            return  # given up before; the lane is not used again
        self._free.append(job.lane)
        self._channel.send_raw(frame if frame is not None else job.work.broken(error))

    def _stop(self, key: int, reason: Literal["timed_out", "cancelled"]) -> None:
        job = self._jobs.get(key)
        if job and job.give_up_at is None:
            job.attempt.stop = reason
            job.give_up_at = self._loop.time() + GRACE_S
            job.lane.cancel()

    def _tick(self) -> None:
        now = self._loop.time()
        for key, job in list(self._jobs.items()):
            if job.give_up_at is None and job.attempt.seconds_left < 0:
                self._stop(key, "timed_out")
            elif job.give_up_at is not None and now > job.give_up_at:
                del self._jobs[key]
                self._channel.send_raw(job.work.given_up(job.lane.place()))
        self._is_ticking = bool(self._jobs)
        if self._is_ticking:
            self._loop.call_later(TICK_S, self._tick)


async def _serve(parent_pid: int, purpose: str) -> None:
    frames_in, frames_out = take_over_pipes()
    guard_process(parent_pid)
    capture_output()
    channel = await open_channel(frames_out)
    with no_collecting():
        _prepare(purpose)
        settle()
    worker = Worker(channel)
    await read_frames(frames_in, worker.receive, end_with_group)
    channel.send(Ready(os.getpid()))
    worker.beat()
    await asyncio.Event().wait()


def _prepare(purpose: str) -> None:
    """Import what the work will need, before any of it comes: see `process.Purpose`."""
    if purpose != "chat":
        from evaldesk.metrics import preload

        preload()
    if purpose == "model_trials":
        from evaldesk.llm.client import open_litellm

        open_litellm()


def main() -> None:
    """Serve the parent until it is gone."""
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
