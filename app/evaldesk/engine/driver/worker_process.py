"""A worker process as its parent sees it: started, fed, watched, ended with its group; and a pool of idle ones."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from evaldesk.codec import msgspec
from evaldesk.engine.driver.zygote import UNFORKED, UNSEEN, AheadTransport, Zygote, ZygoteError
from evaldesk.engine.frames import (
    MAX_FRAME,
    Beat,
    Describe,
    Described,
    Ended,
    Failed,
    Fork,
    Forks,
    FromWorker,
    Grade,
    Happened,
    NextMessage,
    Play,
    Ready,
    Speak,
    Spoke,
    Talk,
    ToWorker,
    TurnEnded,
    frame_from_worker,
)
from evaldesk.engine.launch import OWN, Launch, Launcher
from evaldesk.engine.worker.attempt import LOAD_TIMEOUT_S, Pause, Tail
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.process_setup import descendants, end_marked, hide_memory, mark_process
from evaldesk.wire import LineCutter, to_json, value_scrubber
from evaldesk.workers_ahead import WorkerAhead, take_ahead

TICK_S = 0.5
SILENT_AND_OVERDUE_S = 5.0
SILENT_S = 30.0
OVERDUE_S = 2.0
LONG_OVERDUE_S = 15.0
TERM_GRACE_S = 0.5
EXIT_GRACE_S = 1.0
END_TIMEOUT_S = 10.0
KILLED = 128 + signal.SIGKILL
"""The exit code of docker and podman for a container that was killed."""
NOT_STARTED = (2, 125, 126, 127)
"""Exit codes by which interpreters, shells, docker and podman say that they cannot start what they were asked to."""
MAX_REASON = 500
READY = b'{"type":"ready"'

Purpose: TypeAlias = Literal["player", "zygote", "grader", "grader_with_litellm"]
"""The purpose of a worker decides its imports before it is ready: a player has none of its own, a grader has ROUGE and,
where judges will be asked, LiteLLM. One that is warm may become either. A zygote is a player that watches more closely
what an import does, and is slower for it."""
Answer: TypeAlias = Ended | NextMessage | Spoke | Happened | TurnEnded | Described | Failed
_ANSWERS: Mapping[type, tuple[type, ...]] = {
    Play: (NextMessage, Ended),
    Speak: (Spoke,),
    Grade: (Ended,),
    Talk: (Happened, TurnEnded),
    Describe: (Described, Failed),
    Fork: (Forks,),
}


class WorkerStartError(EvaldeskError):
    """A worker process did not come up; `output` is its printed output."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended: `kind` says it for the error of its trials.

    It is "timed_out" when it was killed because something in it took too long, "out_of_memory" when its container was
    killed, as happens beyond its memory.
    """

    message: str
    output: str
    kind: Literal["worker_died", "timed_out", "out_of_memory"] = "worker_died"


class WorkerProcess:
    """One worker. `on_answer` gets its frames, `on_death` is called once, when it is gone and all frames are read.

    A worker that is gone before `start` returned is the error of `start` alone. `pauses` are the last reported reasons
    why its trials wait. `n_given` counts the trials that it got. `max_processes` bounds the processes of the agent
    beside the worker; None is any
    number.
    """

    def __init__(self, on_answer: Callable[[Answer], None], on_death: Callable[[Death], None]) -> None:
        self._on_answer = on_answer
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._control: socket.socket | None = None
        self._forks: asyncio.Future[Forks] | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._name = "the worker process"
        self._lines = LineCutter(MAX_FRAME)
        self._output = Tail()
        self._ready = self._loop.create_future()
        self._death = self._loop.create_future()
        self.pauses: tuple[Pause, ...] = ()
        self.max_processes: int | None = None
        self.n_given = 0
        self._answer_types: dict[int, tuple[type, ...]] = {}
        self._deadlines: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._unsent_lines: list[bytes] = []
        self._silent_s = 0.0
        self._reason = ""
        self._is_timeout = False
        self._is_up = False
        self._is_closing = False
        self._open = {1, 2}
        self._returncode: int | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._end: tuple[str, ...] = ()
        self._mark = ""
        self._environment: Mapping[str, str] = {}
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id, which is that of its group too."""
        assert self._transport is not None  # noqa: S101 - every holder of a worker has started it
        return self._transport.get_pid()

    @property
    def is_up(self) -> bool:
        """Whether it came up and is not gone."""
        return self._is_up and not self._death.done()

    def hand_over(self, on_answer: Callable[[Answer], None], on_death: Callable[[Death], None]) -> None:
        """Report to another listener from now on; for a worker that has nothing to do."""
        self._on_answer = on_answer
        self._on_death = on_death

    async def start(
        self,
        environment: Mapping[str, str],
        purpose: Purpose = "player",
        launcher: Launcher = OWN,
        *,
        can_fork: bool = False,
        zygote: Zygote | None = None,
    ) -> None:
        """Spawn the process, or fork it, and wait until it is ready. Raises WorkerStartError with its output.

        A worker that `can_fork` may become a zygote.
        """
        self._name = launcher.words
        hide_memory()
        try:
            if zygote:
                self._mark = secrets.token_hex(16)
                await zygote.fork(self._mark, _Pipes(self))
            elif ahead := self._ahead(environment, purpose, launcher, can_fork=can_fork):
                await self._adopt(ahead)
            else:
                await self._spawn(launcher.launch(environment, purpose), can_fork=can_fork)
        except ZygoteError as error:
            raise WorkerStartError(f"{self._name} cannot be forked: {error}", "") from error
        except (OSError, RuntimeError, UsageError) as error:  # no file, no process, no thread for one, no client
            raise WorkerStartError(f"{self._name} cannot be started: {error}", "") from error
        self._tick_timer = self._loop.call_later(TICK_S, self._tick)
        try:
            await asyncio.wait(
                (self._ready, self._death), timeout=launcher.start_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            await self.close()
            raise
        is_gone = self._returncode is not None
        if self._ready.done() and not is_gone:
            self._is_up = True
            return
        await self.close()
        timeout_message = f"{self._name} was not ready within {launcher.start_timeout_s:g} s"
        raise WorkerStartError(self._death.result().message if is_gone else timeout_message, self._output.text())

    def _ahead(
        self, environment: Mapping[str, str], purpose: Purpose, launcher: Launcher, *, can_fork: bool
    ) -> WorkerAhead | None:
        """The worker that was started ahead, where it equals the one to spawn."""
        is_same = launcher is OWN and can_fork is (purpose == "player")
        return take_ahead(purpose, environment) if is_same else None

    async def _adopt(self, ahead: WorkerAhead) -> None:
        self._mark, self._control, self._environment = ahead.mark, ahead.control, ahead.environment
        try:
            await AheadTransport(ahead.process, _Pipes(self)).connect_started()
        except BaseException:
            if self._control:
                self._control.close()
            raise

    async def _spawn(self, launch: Launch, *, can_fork: bool) -> None:
        self._end, self._mark, self._environment = launch.end, launch.mark, launch.environment
        command, child_socket = launch.command, None
        if can_fork:
            self._control, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._control.setblocking(False)
            command = (*command, str(child_socket.fileno()))
        try:
            await self._loop.subprocess_exec(
                lambda: _Pipes(self),
                *command,
                env=launch.environment,
                start_new_session=True,
                pass_fds=(child_socket.fileno(),) if child_socket else (),
            )
        except BaseException:
            if self._control:
                self._control.close()
            raise
        finally:
            if child_socket:
                child_socket.close()

    async def make_zygote(self, frame: Fork) -> Zygote | str:
        """Let the worker import an agent and be forked from now on; else why it is not, in words.

        Without a zygote it stays a worker like any other, unless it is gone: then `is_up` is false.
        """
        if self._control is None:
            return "it was not started for that"
        self._forks = self._loop.create_future()
        self.send(frame, LOAD_TIMEOUT_S, LOAD_TIMEOUT_S)
        await asyncio.wait((self._forks, self._death), return_when=asyncio.FIRST_COMPLETED)
        if not self._forks.done():
            return "it ended"
        answer = self._forks.result()
        UNFORKED[frame.agent] = value_scrubber(self._environment)(answer.reason[:MAX_REASON])
        if answer.is_tainted:
            await self.close()
        if answer.reason:
            return answer.reason
        if self._tick_timer:
            self._tick_timer.cancel()  # a zygote has no beat
        (control, self._control), (mark, self._mark) = (self._control, None), (self._mark, "")
        return Zygote(self.pid, control, mark)

    def send(self, frame: ToWorker, timeout_s: float | None = None, most_s: float = math.inf) -> None:
        """Send a frame; one with a timeout is expected to be answered by then.

        The worker says how much later it may be, as it is with an import, but never later than `most_s`: an agent can
        turn back the clock of its own process.
        """
        line = to_json(frame)
        if timeout_s is not None:
            self._answer_types[frame.key] = _ANSWERS[type(frame)]
            self._deadlines[frame.key] = self._loop.time() + timeout_s
            self._last[frame.key] = self._loop.time() + most_s
        self._unsent_lines.append(line)
        if len(self._unsent_lines) == 1:
            self._loop.call_soon(self._flush)

    def kill(self, reason: str, *, is_timeout: bool = False) -> None:
        """End the process group: politely, then by force. The stacks of a worker that hangs become its last output."""
        if self._returncode is not None or self._reason:
            return
        self._reason = reason
        self._is_timeout = is_timeout
        self._signal(signal.SIGABRT, to_group=False)  # faulthandler writes all stacks, also of a thread with the GIL
        self._loop.call_later(TERM_GRACE_S / 2, self._signal, signal.SIGTERM)
        self._loop.call_later(TERM_GRACE_S, self._signal, signal.SIGKILL)

    async def close(self) -> None:
        """End the worker and wait until it is gone; `on_death` is not called any more."""
        self._is_closing = True
        if self._transport is None:
            return
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()
        await asyncio.wait((self._death,), timeout=EXIT_GRACE_S)
        if not self._death.done():
            self._signal(signal.SIGKILL)
            await self._death
        await self.wait_for_cleanup()

    async def wait_for_cleanup(self) -> None:
        """Wait until the command that cleans up after a lost worker has ended; without one at once."""
        if self._ending:
            await self._ending

    def attach(self, transport: asyncio.SubprocessTransport) -> None:
        """Take hold of the process, which may be gone again before `start` goes on."""
        self._transport = transport
        if self._mark:
            mark_process(self.pid, self._mark)

    def take_data(self, data: bytes) -> None:
        """Read data from the pipe of the frames; text of its interpreter before the worker is ready is output."""
        self._silent_s = 0.0
        try:
            for line in self._lines.feed(data):
                at = 0 if self._ready.done() else line.find(READY)
                if at < 0:
                    self.printed(line + b"\n")
                else:
                    self._act(frame_from_worker(line[at:]))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.kill(f"sent a line that is not a frame ({str(error)[:MAX_REASON]})")

    def printed(self, data: bytes) -> None:
        """Keep the last output of the process on file descriptor 2."""
        self._output.write(data)

    def pipe_ended(self, fd: int) -> None:
        """The pipe of the frames, 1, or of the output is closed: after the frames wait for the exit, not for ever."""
        self._open.discard(fd)
        if self._returncode is None and fd == 1:
            self._loop.call_later(EXIT_GRACE_S, self._signal, signal.SIGKILL)
        elif self._returncode is not None and not self._open:
            self._reap()

    def exited(self) -> None:
        """The process is gone; end its group and descendants, then read its last output."""
        assert self._transport is not None  # noqa: S101 - only a started process exits
        self._signal(signal.SIGKILL)
        if self._mark:
            end_marked(self._mark)
        self._returncode = cast("int", self._transport.get_returncode())
        if self._open:
            self._loop.call_later(EXIT_GRACE_S, self._reap)
        else:
            self._reap()

    def _act(self, frame: FromWorker) -> None:
        if isinstance(frame, Beat):
            now = self._loop.time()
            self.pauses = frame.pauses
            self._deadlines.update(
                {key: min(now + seconds, self._last[key]) for key, seconds in frame.left if key in self._deadlines}
            )
        elif isinstance(frame, Ready):
            if not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(frame, self._answer_types.get(frame.key, ())):  # another is of the agent, and answers nothing
            if not isinstance(frame, Happened | NextMessage):
                for table in (self._answer_types, self._deadlines, self._last):
                    table.pop(frame.key, None)
            if not isinstance(frame, Forks):
                self._on_answer(frame)
            elif self._forks and not self._forks.done():
                self._forks.set_result(frame)

    def _flush(self) -> None:
        lines, self._unsent_lines = self._unsent_lines, []
        stdin = self._transport.get_pipe_transport(0) if self._transport else None
        if stdin is not None and not stdin.is_closing():
            cast("asyncio.WriteTransport", stdin).write(b"\n".join((*lines, b"")))

    def _tick(self) -> None:
        # Counted in ticks and not by the clock: a parent that slept or was busy must not blame the worker.
        self._silent_s += TICK_S
        self._tick_timer = self._loop.call_later(TICK_S, self._tick)
        overdue_s = self._loop.time() - min(self._deadlines.values(), default=float("inf"))
        is_stuck = self._silent_s >= SILENT_AND_OVERDUE_S and overdue_s > OVERDUE_S
        if self._ready.done() and (is_stuck or self._silent_s >= SILENT_S or overdue_s > LONG_OVERDUE_S):
            self.kill(f"did not react for {self._silent_s:g} s and was ended", is_timeout=True)
        elif self.max_processes is not None:
            self._check_processes(self.max_processes)

    def _check_processes(self, most: int) -> None:
        n = len(descendants(self.pid))
        if n > most:
            self.kill(f"was ended: the agent had started {n} processes, and {most} may run at once")

    def _signal(self, number: signal.Signals, *, to_group: bool = True) -> None:
        if self._returncode is not None:
            return  # the number may belong to another process by now
        with suppress(ProcessLookupError, PermissionError):
            if to_group:
                # The worker process leads its own group, so its children get the signal too (decision 099).
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def _reap(self) -> None:
        if self._death.done():
            return
        if self._tick_timer:
            self._tick_timer.cancel()
        assert self._transport is not None  # noqa: S101 - only a started process ends
        self._transport.close()
        if self._control:
            self._control.close()
        if self._end and self._returncode != 0:
            self._ending = self._loop.create_task(_run(self._end, self._environment))
        death = Death(self._exit_message(), self._output.text(), self._death_kind())
        self._death.set_result(death)
        if self._is_up and not self._is_closing:
            self._on_death(death)

    def _death_kind(self) -> Literal["worker_died", "timed_out", "out_of_memory"]:
        if self._is_timeout:
            return "timed_out"
        return "out_of_memory" if self._end and not self._reason and self._returncode == KILLED else "worker_died"

    def _exit_message(self) -> str:
        if self._reason:
            return f"{self._name} {self._reason}"
        if self._death_kind() == "out_of_memory":
            return f"{self._name} was killed, as one is that needs more than its memory"
        code = self._returncode or 0
        if code == UNSEEN:
            return f"{self._name} ended, and nobody saw how"
        if code >= 0:
            lines = "" if self._is_up else self._output.text().strip()
            reason = lines.split("\n")[0 if code in NOT_STARTED else -1][:MAX_REASON]
            return f"{self._name} ended with exit code {code}" + (f": {reason}" if reason else "")
        with suppress(ValueError):
            return f"{self._name} was ended by {signal.Signals(-code).name}"
        return f"{self._name} was ended by signal {-code}"


async def _run(command: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Run the command that ends a container; a missing one is no error."""
    quiet = asyncio.subprocess.DEVNULL
    with suppress(OSError, TimeoutError):
        ending = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet
        )
        try:
            await asyncio.wait_for(ending.wait(), END_TIMEOUT_S)
        except TimeoutError:
            ending.kill()
            await ending.wait()


class Tasks(set["asyncio.Task[None]"]):
    """Tasks under way for which nobody waits meanwhile."""

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Begin one, and hold it until it ends, since a loop holds none."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)


class _Pipes(asyncio.SubprocessProtocol):
    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.attach(cast("asyncio.SubprocessTransport", transport))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._worker.take_data(data)
        else:
            self._worker.printed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd:
            self._worker.pipe_ended(fd)

    def process_exited(self) -> None:
        self._worker.exited()


class WarmPool:
    """Up to `n` idle workers, started one after the other: a desk that has just opened has other things to do."""

    def __init__(self, n: int, *, environment: Mapping[str, str] | None = None) -> None:
        self._n = n
        self._environment = os.environ if environment is None else environment
        self._idle: list[WorkerProcess] = []
        self._filling: asyncio.Task[None] | None = None
        self._purpose: Purpose = "grader"

    @property
    def has_idle(self) -> bool:
        """Whether a worker is ready."""
        return bool(self._up())

    def fill(self, purpose: Purpose) -> None:
        """Start the missing workers, in the background."""
        self._purpose = purpose
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill())

    def take(self, on_answer: Callable[[Answer], None], on_death: Callable[[Death], None]) -> WorkerProcess | None:
        """A worker that is ready, from now on the caller's; None when there is none."""
        if not self._up():
            return None
        worker = self._idle.pop()
        worker.hand_over(on_answer, on_death)
        return worker

    def refill(self) -> None:
        """As `fill`, for the same purpose as before; nothing when `fill` was never called."""
        if self._filling is not None:
            self.fill(self._purpose)

    async def close(self) -> None:
        """End them all."""
        if self._filling:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)
        self._filling = None
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.close() for worker in idle))

    def _up(self) -> list[WorkerProcess]:
        self._idle = [worker for worker in self._idle if worker.is_up]
        return self._idle

    async def _fill(self) -> None:
        while len(self._up()) < self._n:
            worker = WorkerProcess(lambda _: None, lambda _: None)
            try:
                await worker.start(self._environment, self._purpose)
            except WorkerStartError:
                return  # a run that needs a worker will start one, and report the error
            self._idle.append(worker)
