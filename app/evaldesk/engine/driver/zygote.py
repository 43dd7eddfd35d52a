"""A worker that is forked for other workers, as their parent sees it (see `engine/worker/zygote.py`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO, cast

from evaldesk.errors import EvaldeskError
from evaldesk.model import AgentRef
from evaldesk.process_setup import children

FORK_TIMEOUT_S = 20.0
STATUS_S = 1.0
MAX_MESSAGE = 4096
UNSEEN = -999
"""The exit code of a fork whose end nobody saw, since its zygote was gone."""

UNFORKED: dict[AgentRef, str] = {}
"""Why agents were not forked when that was last tried in this process, in words; empty where they were."""


class ZygoteError(EvaldeskError):
    """A zygote makes no fork any more."""


class Zygote:
    """The process `pid`, which forks when asked through `control`. Its answers are checked: agents run in it, too.

    Its `mark` is that of its forks as well: the kernel shows the environment with which a program began.
    """

    def __init__(self, pid: int, control: socket.socket, mark: str) -> None:
        self.mark = mark
        self._pid = pid
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._fork_answer: asyncio.Future[int] | None = None
        self._lock = asyncio.Lock()
        self._forks: dict[int, ForkedTransport] = {}
        self.is_up = True
        self._loop.add_reader(control, self._read)

    async def fork(self, mark: str, protocol: asyncio.SubprocessProtocol) -> None:
        """A new process for that protocol, with `mark` in its environment. Raises ZygoteError, OSError."""
        async with self._lock:
            if not self.is_up:
                raise ZygoteError("the zygote is gone")
            (frames_in, to_child), (from_child, frames_out), (output, its_output) = (os.pipe() for _ in range(3))
            child_ends, own_ends = (frames_in, frames_out, its_output), (to_child, from_child, output)
            self._fork_answer = self._loop.create_future()
            try:
                socket.send_fds(self._control, [mark.encode()], child_ends)
                pid = await asyncio.wait_for(self._fork_answer, FORK_TIMEOUT_S)
                transport = self._forks[pid] = ForkedTransport(pid, self._forks, protocol)
            except BaseException as error:
                for fd in own_ends:
                    os.close(fd)
                if isinstance(error, TimeoutError):
                    raise ZygoteError("the zygote does not answer") from error
                raise
            finally:
                self._fork_answer = None
                for fd in child_ends:
                    os.close(fd)
            await transport.connect(
                os.fdopen(to_child, "wb", 0), os.fdopen(from_child, "rb", 0), os.fdopen(output, "rb", 0)
            )

    def retire(self) -> None:
        """Ask for no more forks; existing ones stay, and it still reports their ends."""
        self.is_up = False
        self._answer(ZygoteError("the zygote is gone"))

    def close(self) -> None:
        """Let it end, and its forks with it."""
        self.retire()
        if self._control.fileno() != -1:
            self._loop.remove_reader(self._control)
            self._control.close()

    def _read(self) -> None:
        try:
            data = self._control.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        with suppress(ValueError, TypeError, IndexError, OverflowError, RecursionError):
            self._act(*json.loads(data))  # what is no message of ours is not acted on

    def _act(self, kind: str, *facts: Any) -> None:
        if kind == "forked" and self._fork_answer:
            pid = facts[0] if type(facts[0]) is int else 0
            is_its = pid in children(self._pid) and pid not in self._forks
            self._answer(pid if is_its else ZygoteError("the zygote named a process that is not its own"))
        elif kind == "failed":
            self._answer(ZygoteError(str(facts[0])))
        elif kind == "ended" and (fork := self._forks.get(facts[0])):
            fork.note_end(os.waitstatus_to_exitcode(facts[1]))

    def _answer(self, answer: int | ZygoteError) -> None:
        if self._fork_answer and not self._fork_answer.done():
            self._fork_answer.set_exception(answer) if isinstance(
                answer, ZygoteError
            ) else self._fork_answer.set_result(answer)


class ForkedTransport(asyncio.SubprocessTransport):
    """A process that is a child of its zygote: its pipes, its end and, where the zygote says it, its exit code."""

    def __init__(self, pid: int, transports: dict[int, ForkedTransport], protocol: asyncio.SubprocessProtocol) -> None:
        super().__init__()
        self._pid = pid
        self._transports = transports
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._returncode: int | None = None
        self._status = UNSEEN
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._process = -1

    async def connect(self, to_child: BinaryIO, from_child: BinaryIO, output: BinaryIO) -> None:
        """Connect the protocol, and watch the process from now on."""
        self._pipes[0], _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, to_child)
        self._protocol.connection_made(self)
        for number, pipe in ((1, from_child), (2, output)):
            self._pipes[number], _ = await self._loop.connect_read_pipe(partial(_ReadEnd, self._protocol, number), pipe)
        try:
            self._process = os.pidfd_open(self._pid)
        except ProcessLookupError:
            self._note_exit()
            return
        self._loop.add_reader(self._process, self._note_exit)

    def get_pid(self) -> int:
        """The process id, which is that of its group."""
        return self._pid

    def get_returncode(self) -> int | None:
        """None while it runs; the negative number of a signal; UNSEEN."""
        return self._returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """The pipe that the process has as that file descriptor."""
        return self._pipes.get(fd)

    def close(self) -> None:
        """Close the pipes."""
        for pipe in self._pipes.values():
            pipe.close()

    def note_end(self, status: int) -> None:
        """The zygote says how it ended."""
        self._status = status
        if self._process == -1:
            self._end()

    def _note_exit(self) -> None:
        """The process is gone; its exit code is on its way, where the zygote is up."""
        if self._process != -1:
            self._loop.remove_reader(self._process)
            os.close(self._process)
            self._process = -1
        if self._status != UNSEEN:
            self._end()
        else:
            self._loop.call_later(STATUS_S, self._end)

    def _end(self) -> None:
        if self._returncode is None:
            self._returncode = self._status
            self._transports.pop(self._pid, None)
            self._protocol.process_exited()


class AheadTransport(ForkedTransport):
    """A process that this one started before it had an event loop."""

    def __init__(self, process: subprocess.Popen[bytes], protocol: asyncio.SubprocessProtocol) -> None:
        super().__init__(process.pid, {}, protocol)
        self._ends = process.stdin, process.stdout, process.stderr
        process.returncode = 0  # its end is seen here, so Popen is not to look for it

    async def connect_started(self) -> None:
        """Connect the protocol with the pipes of the process."""
        ends = [cast("BinaryIO", end) for end in self._ends]
        try:
            await self.connect(*ends)
        except BaseException:
            with suppress(ProcessLookupError):  # a fork leads a group of its own, as every player does (decision 222)
                os.killpg(self._pid, signal.SIGKILL)
            self.close()
            for end in ends:
                end.close()
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            raise

    def _note_exit(self) -> None:
        with suppress(ChildProcessError):  # somebody else has waited for all children
            _, status = os.waitpid(self._pid, 0)  # it is over already
            self._status = os.waitstatus_to_exitcode(status)
        super()._note_exit()


class _ReadEnd(asyncio.Protocol):
    def __init__(self, protocol: asyncio.SubprocessProtocol, number: int) -> None:
        self._protocol = protocol
        self._number = number

    def data_received(self, data: bytes) -> None:
        self._protocol.pipe_data_received(self._number, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.pipe_connection_lost(self._number, error)
