"""The worker process: `python -m evaldesk.engine.worker.main PARENT_PID PURPOSE [CONTROL]`; it ends with its parent.

A worker in a container cannot see its parent, and has the number 0 for it: the end of its input is the end of both. It
is the same in a fork of a worker (see `zygote`). CONTROL is the file descriptor by which a worker is asked to fork.

Its main loop only moves frames and watches deadlines; the attempts are in trial threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import gc
import itertools
import os
import resource
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, cast
from weakref import WeakSet

from evaldesk.engine.failures import place_of
from evaldesk.engine.frames import (
    MAX_FRAME,
    Beat,
    Describe,
    Fork,
    FromWorker,
    Grade,
    Play,
    Ready,
    Speak,
    Stop,
    Talk,
    UserMessage,
    frame_to_worker,
)
from evaldesk.engine.worker import player
from evaldesk.engine.worker.attempt import STDERR, Attempt, active, capture_output, note_forks
from evaldesk.engine.worker.jobs import DescribeJob, ForkJob, GradeJob, Job, TrialJob, TurnJob, UserJob
from evaldesk.engine.worker.shared_state_watch import SharedStateWatch
from evaldesk.llm.direct import use_loop
from evaldesk.process_setup import (
    RESOURCE_ATTRIBUTES,
    ImportWatch,
    ProcessWatch,
    adopt_orphans,
    allow_open_files,
    bound_memory,
    end_descendants,
    gc_paused,
    give_up_tracing,
    hide_memory,
    with_played,
)
from evaldesk.secrets import known_values
from evaldesk.wire import LineCutter, to_json, value_json_scrubber_of

if TYPE_CHECKING:
    from evaldesk.engine.worker.zygote import LoopRef, Pipes

Done: TypeAlias = Callable[[asyncio.Task[object]], None]

_numbers = itertools.count(1)


class TrialThread:
    """One thread and its loop. `on_done` of a job is called in the trial thread's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._loop.set_task_factory(self._make_task)
        self._task: asyncio.Task[object] | None = None
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name=f"trial-{next(_numbers)}", daemon=True)
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        """Whether work may be started: user code can close the loop it runs in."""
        return not self._loop.is_closed() and self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, object], on_done: Done) -> None:
        """Carry out `work` as a task of the trial thread's loop."""
        self._loop.call_soon_threadsafe(self._begin, work, on_done)

    def cancel(self) -> None:
        """Cancel the work under way; without effect where the loop is blocked."""
        if self.is_usable:
            self._loop.call_soon_threadsafe(self._cancel)

    def place(self) -> str:
        """Where the thread stands at this moment, as a stack."""
        return place_of(self._thread)

    def end(self) -> LoopRef:
        """End the thread and close its loop, which is gone then but for holders that are not ours."""
        self._is_ended = True
        if self.is_usable:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(GRACE_S)
        self._loop.set_task_factory(None)
        loop_ref = weakref.ref(self._loop)
        del self._loop
        return loop_ref

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        use_loop(self._loop)
        while not (self._loop.is_closed() or self._is_ended):
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # of a task: asyncio lets these two through, and the loop can go on
        if self._is_ended:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, object], on_done: Done) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._end)
        self._task.add_done_callback(on_done)

    def _cancel(self) -> None:
        if self._task:
            self._task.cancel()

    def _end(self, task: asyncio.Task[object]) -> None:
        """Cancel tasks that the work left running, so that they cannot reach into the next."""
        self._task = None
        for open_task in list(self._tasks):  # asyncio.all_tasks would look at those of every trial thread
            open_task.cancel()

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """A task as the loop would make it, remembered."""
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self._tasks.add(task)
        return task


BEAT_S = 0.5
DRAIN_S = 0.01
TICK_S = 0.1
GRACE_S = 1.0


@dataclass(slots=True)
class _ActiveJob:
    """A job in its trial thread; `give_up_at` is set when it was told to stop."""

    job: Job
    trial_thread: TrialThread
    give_up_at: float | None = None

    @property
    def attempt(self) -> Attempt:
        return self.job.attempt


class Worker:
    """The jobs of this process, by key, and the trial threads that are free. `forking` has the key once it is asked."""

    def __init__(self, channel: Channel) -> None:
        self.forking: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[int, _ActiveJob] = {}
        self._free: list[TrialThread] = []
        self._watch = ProcessWatch()
        self._shared_state = SharedStateWatch()
        self._is_ticking = False

    def receive(self, line: bytes) -> None:
        """Act on a frame of the parent."""
        frame = frame_to_worker(line)
        if isinstance(frame, Stop):
            self._stop(frame.key, "cancelled")
        elif isinstance(frame, UserMessage):
            entry = self._jobs.get(frame.key)
            if entry and isinstance(entry.job, TrialJob):
                entry.job.take_message(frame)
        else:
            self._begin(frame)

    def beat(self) -> None:
        """Tell the parent that this loop is alive, again and again."""
        rearm_guard()
        self._channel.send(self.snapshot())
        self._loop.call_later(BEAT_S, self.beat)

    def snapshot(self) -> Beat:
        """How the jobs stand at this moment."""
        seconds_left = tuple((key, job.attempt.seconds_left) for key, job in self._jobs.items())
        return Beat(seconds_left, active(job.attempt.pause for job in self._jobs.values()))

    def end_threads(self) -> list[LoopRef]:
        """End the idle trial threads; returns their loops."""
        threads, self._free = self._free, []
        return [thread.end() for thread in threads]

    def _begin(self, frame: Play | Speak | Grade | Talk | Describe | Fork) -> None:
        job = self._job(frame)
        try:
            if isinstance(frame, Play) and frame.spec.limits.memory_mib:
                bound_memory(frame.spec.limits.memory_mib)
            trial_thread = self._trial_thread()
        except Exception as error:  # no thread can be started
            self._channel.send_raw(job.broken(error))
            return
        self._jobs[frame.key] = _ActiveJob(job, trial_thread)
        trial_thread.start(job.run(), partial(self._done_in_thread, frame.key))
        if not self._is_ticking:
            self._is_ticking = True
            self._loop.call_later(TICK_S, self._tick)

    def _job(self, frame: Play | Speak | Grade | Talk | Describe | Fork) -> Job:
        if isinstance(frame, Play):
            return TrialJob(frame, self._channel.send, self._watch, self._shared_state if frame.is_shared else None)
        if isinstance(frame, Speak):
            return UserJob(frame)
        if isinstance(frame, Grade):
            return GradeJob(frame)
        if isinstance(frame, Talk):
            return TurnJob(frame, self._channel.send)
        return ForkJob(frame) if isinstance(frame, Fork) else DescribeJob(frame)

    def _trial_thread(self) -> TrialThread:
        while self._free:
            trial_thread = self._free.pop()
            if trial_thread.is_usable:
                return trial_thread
        return TrialThread()

    def _done_in_thread(self, key: int, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        frame = cast("bytes", task.result()) if not task.cancelled() and not error else None
        self._loop.call_soon_threadsafe(self._finish_job, key, frame, error)

    def _finish_job(self, key: int, frame: bytes | None, error: BaseException | None) -> None:
        entry = self._jobs.pop(key, None)
        if entry is None:
            return  # given up before; the trial thread is not used again
        self._free.append(entry.trial_thread)
        if isinstance(entry.job, ForkJob) and entry.job.is_done:
            self.forking.set_result(key)
            return
        self._answer(entry.job, lambda: frame if frame is not None else entry.job.broken(error))

    def _answer(self, job: Job, frame: Callable[[], bytes]) -> None:
        """Send the frame; a failure of encoding or masking it becomes the result of the job."""
        try:
            self._channel.send_raw(frame())
        except Exception as error:
            self._channel.send_raw(job.broken(error))

    def _stop(self, key: int, reason: Literal["timed_out", "cancelled"]) -> None:
        entry = self._jobs.get(key)
        if entry and entry.give_up_at is None:
            entry.attempt.stop = reason
            entry.give_up_at = self._loop.time() + GRACE_S
            entry.trial_thread.cancel()

    def _tick(self) -> None:
        now = self._loop.time()
        for key, entry in list(self._jobs.items()):
            if entry.give_up_at is None and entry.attempt.seconds_left < 0:
                self._stop(key, "timed_out")
            elif entry.give_up_at is not None and now > entry.give_up_at:
                del self._jobs[key]
                self._answer(entry.job, partial(entry.job.given_up, entry.trial_thread.place()))
        self._is_ticking = bool(self._jobs)
        if self._is_ticking:
            self._loop.call_later(TICK_S, self._tick)


async def _serve(pipes: Pipes, purpose: str) -> tuple[int, Worker]:
    """Serve the parent; returns when this process is asked to fork."""
    frames_in, frames_out = pipes
    channel = await open_channel(frames_out)
    with gc_paused():
        _prepare(purpose)
        gc.freeze()
    worker = Worker(channel)
    reader = await read_frames(frames_in, worker.receive, end_with_group)
    channel.send(Ready(os.getpid()))
    worker.beat()
    key = await worker.forking
    reader.pause_reading()
    await channel.drain()
    _references.append((reader, channel))  # a transport that is collected closes its pipe
    return key, worker


_references: list[object] = []


def _prepare(purpose: str) -> None:
    """Import the packages of the jobs before the first one: see `worker_process.Purpose`."""
    if purpose not in PLAYERS:
        from evaldesk.metrics import preload

        preload()
    if purpose == "grader_with_litellm":
        from evaldesk.llm.client import open_litellm

        open_litellm()


def main() -> None:
    """Serve the parent until it is gone. A player cannot read the memory of others, nor anyone that of a grader."""
    parent_pid, purpose, *control = sys.argv[1:]
    (give_up_tracing if purpose in PLAYERS else hide_memory)()
    pipes = take_over_pipes()
    guard_process(int(parent_pid))
    # A container has the variables of its image, which its launcher does not know.
    os.environ[RESOURCE_ATTRIBUTES] = with_played(os.environ.get(RESOURCE_ATTRIBUTES, ""))
    with suppress(OSError):
        os.nice(NICENESS)
    capture_output()
    note_forks()
    watch = ImportWatch(sees_files=purpose == "zygote") if control else None
    if watch:
        player.watch_import = lambda ref: watch.of(ref.root, ref.folder)
    zygote = None
    while True:
        key, worker = asyncio.run(_serve(pipes, purpose))
        # A zygote may have one thread only: decision 222.
        faulthandler.cancel_dump_traceback_later()  # it has a thread
        if watch and zygote is None:
            from evaldesk.engine.worker.zygote import Zygote  # most players are never asked

            zygote = Zygote(int(control[0]), watch)
        fork_pipes = zygote and zygote.serve(pipes, key, worker.end_threads())
        if not fork_pipes:
            end_with_group()
            return
        pipes = fork_pipes
        guard_process(NO_PARENT)


PLAYERS = ("player", "zygote")
NO_PARENT = 0


class Channel:
    """Writes frames from any thread, at once where the pipe has room; all that wait are written in one go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, fd: int) -> None:
        self._loop = loop
        self._transport = transport
        self._fd = fd
        # Trial threads send while the main loop writes; a frame is never mixed with another.
        self._lock = Lock()
        self._unsent_lines: list[bytes] = []

    def send(self, frame: FromWorker) -> None:
        """Send a frame."""
        self.send_raw(to_json(frame))

    def send_raw(self, frame: bytes) -> None:
        """Send a frame that is JSON already, without the secrets of this process."""
        frame = _scrubbed(frame)
        with self._lock:
            if not self._unsent_lines and self._transport.get_write_buffer_size() == 0:
                # The loop of the frames is not woken for it: a question for the next message is asked in each turn.
                frame = self._write_now(frame + b"\n")
                if not frame:
                    return
            else:
                frame += b"\n"
            self._unsent_lines.append(frame)
            is_first = len(self._unsent_lines) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._flush)

    def _write_now(self, line: bytes) -> bytes:
        """Write what the pipe takes; the rest."""
        try:
            return line[os.write(self._fd, line) :]
        except OSError:  # the pipe is full, or the parent is gone
            return line

    async def drain(self) -> None:
        """Wait until all is written."""
        while self._unsent_lines or self._transport.get_write_buffer_size():
            await asyncio.sleep(DRAIN_S)

    def _flush(self) -> None:
        with self._lock:
            lines, self._unsent_lines = self._unsent_lines, []
            self._transport.write(b"".join(lines))


def _scrubbed(frame: bytes) -> bytes:
    """Variables that agents read into the environment themselves, as from `.env`, are known in this process only.

    The driver looks for texts like keys in all that it stores or shows, since it trusts no worker (decision 043).
    The environment is compared as it lies in memory: decoding its variables for each frame takes 0.5 ms.
    """
    global _seen_environment, _scrub  # noqa: PLW0603 - of the process, as the environment is
    now = getattr(os.environ, "_data", os.environ)
    if now != _seen_environment:
        with _environment_lock:
            environment = dict(now)
            _scrub = _scrubber(tuple(known_values(os.environ).items()))
            _seen_environment = environment
    return _scrub(frame)


# An agent may change the environment from any thread; the scrubber must match one state of it.
_environment_lock = Lock()
_seen_environment: dict[Any, Any] | None = None


@lru_cache(maxsize=8)
def _scrubber(variable_values: tuple[tuple[str, str], ...]) -> Callable[[bytes], bytes]:
    return value_json_scrubber_of(dict(variable_values))


_scrub = _scrubber(())


class _Reader(asyncio.Protocol):
    def __init__(self, receive: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._lines = LineCutter(MAX_FRAME)
        self._receive = receive
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._receive(line)

    def eof_received(self) -> None:
        self._on_end()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()


async def open_channel(pipe: BinaryIO) -> Channel:
    """The channel that writes to `pipe`."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pipe)
    return Channel(loop, transport, pipe.fileno())


async def read_frames(
    pipe: BinaryIO, receive: Callable[[bytes], None], on_end: Callable[[], None]
) -> asyncio.ReadTransport:
    """Give every line of `pipe` to `receive` from now on, and call `on_end` when the other side is gone."""
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: _Reader(receive, on_end), pipe)
    return transport


STUCK_S = 45.0
NICENESS = 5

_PR_SET_PDEATHSIG = 1


def take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the frames alone: user code finds nothing on 0, and its 1 is 2."""
    frames_in, frames_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(STDERR, 1)
    return os.fdopen(frames_in, "rb", buffering=0), os.fdopen(frames_out, "wb", buffering=0)


def guard_process(parent_pid: int) -> None:
    """End with the parent, leave no core file, and let the pages of the server go first. (decision 099)"""
    signal.signal(signal.SIGTERM, lambda *_: end_with_group())
    # Ctrl-C reaches the whole terminal group; the driver alone decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allow_open_files()
    adopt_orphans()
    if parent_pid:
        if sys.platform == "linux":
            # The kernel tells of a killed driver; getppid tells of one that died before this call.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:
            end_with_group()
    rearm_guard()


def rearm_guard() -> None:
    """Put off by STUCK_S the moment at which a thread without need of the GIL ends this process, saying where it is."""
    # A C thread of the library, so it fires also where a thread never gives up the GIL.
    faulthandler.dump_traceback_later(STUCK_S, exit=True, file=STDERR)


def end_with_group() -> None:
    """End this process and its children at once, also children outside of its group. (decision 099)"""
    try:
        end_descendants()
    finally:  # user code can have replaced what that calls
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        # No cleanup of user code may run here, as it could block the end.
        os._exit(0)


if __name__ == "__main__":
    main()
