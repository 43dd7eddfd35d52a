"""A player that has imported an agent and is forked for the other players of a run, where that is safe.

It is safe only while the kernel says that one thread runs and that nothing is open that two processes must not share,
and where the import left nothing behind that each process should have of its own. Else it stays a player, and the
others import the agent themselves (decision 222).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO, TypeAlias

from evaldesk.engine.frames import Forks
from evaldesk.engine.worker.attempt import STDERR
from evaldesk.process_setup import WORKER_VARIABLE, ImportWatch, children, descendants
from evaldesk.wire import to_json

Pipes: TypeAlias = tuple[BinaryIO, BinaryIO]
LoopRef: TypeAlias = "weakref.ref[asyncio.AbstractEventLoop]"

MAX_REQUEST = 256
N_LOOKS, LOOK_S = 20, 0.005
OWN_RANDOMNESS = ("numpy.random", "torch")
"""Modules with random numbers of their own, which all forks would draw alike."""


class Zygote:
    """This process as a zygote. Requests come by `control`; each is the mark of a player, with its pipes.

    What it says there is one JSON list a message: `["forked", pid]`, `["failed", reason]`, `["ended", pid, status]`.
    """

    def __init__(self, control: int, watch: ImportWatch) -> None:
        self._control = socket.socket(fileno=control)
        self._watch = watch
        self._players: dict[int, int] = {}

    def serve(self, pipes: Pipes, key: int, loops: Sequence[LoopRef]) -> Pipes | None:
        """Answer the frame of that key and be forked from then on; returns in each fork alone, with its own pipes.

        `loops` were closed before. Where this process cannot be forked it returns at once and stays a player. None when
        the parent is gone.
        """
        thread_reason = _bound_to_thread(loops)
        reason = thread_reason or self._reason(pipes)
        os.set_blocking(pipes[1].fileno(), True)
        pipes[1].write(to_json(Forks(key, reason, is_tainted=bool(thread_reason))) + b"\n")
        return pipes if reason else self._fork_when_asked(pipes)

    def _reason(self, pipes: Pipes) -> str:
        """Why this process cannot be forked, in words; empty where it can."""
        if self._watch.found:
            return self._watch.found
        if not _is_single_threaded():
            return "it keeps a thread running"
        if getattr(sys.modules.get("tempfile"), "_name_sequence", None) is not None:
            return "it makes a temporary file while it is imported"
        for name in OWN_RANDOMNESS:
            if name in sys.modules:
                return f"it imports {name}, which has random numbers of its own"
        if _open_files() - {0, 1, STDERR, self._control.fileno(), *(pipe.fileno() for pipe in pipes)}:
            return "it keeps a file or a connection open"
        with open("/proc/self/maps", "rb") as maps:
            if any(line.split(maxsplit=2)[1] == b"rw-s" for line in maps):
                return "it has memory that forks would share"
        return "" if hasattr(os, "pidfd_open") else "this Python cannot watch processes"

    def _fork_when_asked(self, pipes: Pipes) -> Pipes | None:
        gc.freeze()
        state = random.getstate() if self._watch.is_seeded else None
        poll = select.poll()
        for fd in (self._control.fileno(), pipes[0].fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in self._players:
                    poll.unregister(fd)
                    self._report_end(fd)
                elif fd == pipes[0].fileno():
                    if not os.read(fd, MAX_REQUEST):
                        return None
                else:
                    mark, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, 3)
                    if not mark:
                        return None
                    pid = self._forked()
                    if pid == 0:
                        return self._became_player(mark.decode(), fds, pipes, state)
                    for each in fds:
                        os.close(each)
                    if pid:
                        player = os.pidfd_open(pid)
                        self._players[player] = pid
                        poll.register(player, select.POLLIN)

    def _forked(self) -> int | None:
        """Fork, and tell so; None where there is no process to be had."""
        try:
            # Safe only after the checks of this class, which see C threads too: decision 222.
            pid = os.fork()
        except OSError as error:
            self._say("failed", str(error))
            return None
        if pid:
            self._say("forked", pid)
        return pid

    def _report_end(self, player: int) -> None:
        """Report the end of a player, and end its orphans, which are children of this process now."""
        os.close(player)
        pid = self._players.pop(player)
        _, status = os.waitpid(pid, 0)
        # A subreaper: what a dead player leaves becomes our child (decisions 099, 222).
        for orphan in set(children(os.getpid())) - set(self._players.values()):
            for each in (orphan, *descendants(orphan)):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            os.waitpid(orphan, 0)
        self._say("ended", pid, status)

    def _became_player(self, mark: str, fds: list[int], pipes: Pipes, state: Any) -> Pipes:
        """Let go of all that is the zygote's."""
        os.setsid()
        self._control.close()
        for pipe in pipes:
            pipe.close()
        for player in self._players:
            os.close(player)
        self._players.clear()
        frames_in, frames_out, output = fds
        for fd in (1, STDERR):
            os.dup2(output, fd)
        os.close(output)
        os.environ[WORKER_VARIABLE] = mark
        if state:
            random.setstate(state)
        return os.fdopen(frames_in, "rb", buffering=0), os.fdopen(frames_out, "wb", buffering=0)

    def _say(self, *message: object) -> None:
        with suppress(OSError):  # the parent is gone, which is seen at the next look
            self._control.send(json.dumps(message).encode())


def _bound_to_thread(loops: Sequence[LoopRef]) -> str:
    """The reason why imported objects work only in their own thread; empty where they are not bound to it.

    A client belongs to the loop in which it was made, and a connection of SQLite to the thread.
    """
    if any(loop() for loop in loops):
        gc.collect()
    if any(loop() for loop in loops):
        return "it keeps the event loop in which it was imported"
    connection = getattr(sys.modules.get("_sqlite3"), "Connection", None)
    is_open = connection is not None and any(isinstance(each, connection) for each in gc.get_objects())
    return "it keeps a database open" if is_open else ""


def _is_single_threaded() -> bool:
    """Whether the kernel says so; a thread that was joined may need a moment to be gone there, too."""
    for _ in range(N_LOOKS):
        if len(os.listdir("/proc/self/task")) == 1:
            return True
        time.sleep(LOOK_S)
    return False


def _open_files() -> set[int]:
    """The file descriptors of this process, without that of the listing."""
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}
