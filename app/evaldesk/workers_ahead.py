"""Workers that a command starts before its own imports, which take as long as the start of a worker.

They equal the later ones: on this interpreter, with the same environment and folder. They know of no
agent, and end with this process. Linux only, since the end of a process that has no event loop yet is seen there.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from evaldesk.process_setup import RESOURCE_ATTRIBUTES, WORKER_VARIABLE, hide_memory, with_played, working_folder

SECRETS = ("EVALDESK_TOKEN", "EVALDESK_STORE")
"""Variables that no worker gets: they open the desk and its database."""
# Started before the imports of the command: decision 234.
COMMAND = (sys.executable, "-P", "-X", "faulthandler", "-m", "evaldesk.engine.worker.main")


@dataclass(frozen=True, slots=True)
class WorkerAhead:
    """A worker that nobody listens to yet; a player has a `control` by which it can be asked to fork."""

    process: subprocess.Popen[bytes]
    mark: str
    control: socket.socket | None
    environment: Mapping[str, str]
    folder: str


_idle_workers: dict[str, WorkerAhead] = {}


def start_ahead(*purposes: str) -> None:
    """Start a worker for each purpose; after a failure the later user starts it and reports the reason."""
    if not _can_watch_processes():
        return
    hide_memory()
    atexit.register(end_ahead)
    for purpose in purposes:
        end_ahead(purpose)
        try:
            _idle_workers[purpose] = _start(purpose)
        except OSError:
            return


def take_ahead(purpose: str, environment: Mapping[str, str]) -> WorkerAhead | None:
    """The worker of that purpose, from now on the caller's; None where there is none, or where it would be another."""
    worker = _idle_workers.get(purpose)
    if worker is None or worker.process.poll() is not None:
        return None
    if worker.environment != dict(environment) or worker.folder != working_folder():
        return None
    return _idle_workers.pop(purpose)


def end_ahead(*purposes: str) -> None:
    """End the workers of these purposes that nobody took; without purposes, all."""
    for purpose in purposes or tuple(_idle_workers):
        if worker := _idle_workers.pop(purpose, None):
            worker.process.kill()
            worker.process.communicate()
            if worker.control:
                worker.control.close()


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker of this interpreter; its spans are marked as played."""
    own = {name: value for name, value in environment.items() if name not in SECRETS}
    return own | {RESOURCE_ATTRIBUTES: with_played(own.get(RESOURCE_ATTRIBUTES, ""))}


def _can_watch_processes() -> bool:
    """Whether the end of a process is seen without an event loop: not on old kernels, nor on other systems."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _start(purpose: str) -> WorkerAhead:
    mark, environment = secrets.token_hex(16), dict(os.environ)
    command: tuple[str, ...] = (*COMMAND, str(os.getpid()), purpose)
    own_end, worker_end = (
        socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if purpose == "player" else (None, None)
    )
    if worker_end:
        command = (*command, str(worker_end.fileno()))
    try:
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**own_environment(environment), WORKER_VARIABLE: mark},
            start_new_session=True,
            pass_fds=(worker_end.fileno(),) if worker_end else (),
        )
    except OSError:
        if own_end:
            own_end.close()
        raise
    finally:
        if worker_end:
            worker_end.close()
    if own_end:
        own_end.setblocking(False)
    return WorkerAhead(process, mark, own_end, environment, working_folder())
