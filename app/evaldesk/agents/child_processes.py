"""Model calls of the processes that a function starts: each process gets the address of a model gateway. (decision 125)

A coding agent's SDK starts its client as a process; what it asks is seen on its way, as that of a command.
"""

from __future__ import annotations

import contextvars
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import signature
from typing import Any
from weakref import WeakSet

from evaldesk.agents.agent import SessionResource
from evaldesk.agents.remote.model_gateway import Answer, Call, ModelGateway, PlayedTurn
from evaldesk.agents.remote.providers import PROVIDERS
from evaldesk.llm.client_wrapping import on_import, parts_of, wrap_once
from evaldesk.llm.recording import CURRENT_RECORDER, is_replaying
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import Event, Session

_MEMORY = "child_processes"
_MARK = "_gets_gateway"
_VARIABLES = "_evaldesk_variables"
_MAY_INHERIT = sys.version_info >= (3, 13)
"""Whether `os.posix_spawn` takes None for the environment of this process."""
_MULTIPROCESSING = ("multiprocessing.process", "multiprocessing.util")
_BASE_VARIABLES = tuple(name for provider in PROVIDERS.values() for name in provider.variables)


@contextmanager
def watching_processes(session: Session) -> Iterator[None]:
    """Count the model calls of processes that the session starts, or has started, in its current turn.

    A gateway opens with the first process.
    """
    _wrap_starts()
    on_import(_MULTIPROCESSING, _wrap_starts)
    gateways = session.memory.setdefault(_MEMORY, ChildGateways())
    assert isinstance(gateways, ChildGateways)  # noqa: S101 - nobody else has this key
    _CURRENT.set(gateways)
    gateways.begin(_played_turn(session))
    try:
        yield
    finally:
        gateways.end()


class ChildGateways(SessionResource):
    """The gateways of one session: one for each set of base addresses in the environments of its processes."""

    def __init__(self) -> None:
        self.turn: PlayedTurn | None = None
        self._gateways: dict[tuple[str | None, ...], ChildGateway] = {}
        self._processes: WeakSet[subprocess.Popen[Any]] = WeakSet()
        self._pids: set[int] = set()

    def begin(self, turn: PlayedTurn) -> None:
        """Assign calls to this turn."""
        self.turn = turn
        _listening.append(self)
        for gateway in self._gateways.values():
            gateway.begin(turn)

    def end(self) -> None:
        """Wait shortly for the last calls, and assign no more of them."""
        for gateway in [*self._gateways.values()]:
            gateway.end()
        self.turn = None
        _listening.remove(self)

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables for a process with that environment, whose own base addresses stay the targets.

        Empty where they are those of a gateway already: one start goes through another.
        """
        from evaldesk.agents.remote.forwarding import register_gateway  # a server is for those who start processes

        bases = tuple(environment.get(name) for name in _BASE_VARIABLES)
        addresses = {value for gateway in self._gateways.values() for value in gateway.variables().values()}
        if not addresses.isdisjoint(each for each in bases if each):
            return {}
        if bases not in self._gateways:
            names = (*_BASE_VARIABLES, "no_proxy", "NO_PROXY")
            own = {name: environment[name] for name in names if environment.get(name)}
            gateway = self._gateways[bases] = ChildGateway(own)
            register_gateway(gateway)
            if self.turn:
                gateway.begin(self.turn)
        return self._gateways[bases].variables()

    def add(self, process: subprocess.Popen[Any]) -> None:
        """Add a started process."""
        self._processes.add(process)

    def add_pid(self, pid: int) -> None:
        """Add a started process that is only known by its number."""
        self._pids.add(pid)

    def close(self) -> None:
        """Remove the addresses, unless a process that others may use is alive."""
        has_ended = all(process.poll() is not None for process in [*self._processes])
        if has_ended and not any(map(_is_alive, self._pids)):
            for gateway in self._gateways.values():
                gateway.close()


class ChildGateway(ModelGateway):
    """A gateway that reports calls as those of an in-process client: the turn reads tool calls and tokens in them.

    A call between turns, of a process that several sessions share, is forwarded all the same.
    """

    @contextmanager
    def call(self) -> Iterator[PlayedTurn | None]:
        """The current turn; else the only current one of another session, else one that counts nothing."""
        with super().call() as turn:
            yield turn or _other_turn()

    def may_ask(self, turn: PlayedTurn, call: Call) -> bool:
        """Whether the turn may make the call: as often as with a client in the process."""
        return True

    def report(self, turn: PlayedTurn, call: Call, answer: Answer) -> None:
        """Report an answered call to the turn."""
        turn.note_own_answer(call, answer)


_CURRENT: ContextVar[ChildGateways | None] = ContextVar("child_gateways", default=None)
_listening: list[ChildGateways] = []
_START = signature(subprocess.Popen.__init__)


def _is_alive(pid: int) -> bool:
    """Whether a child runs; the status of an ended one is left to the agent."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _current_gateways() -> ChildGateways | None:
    gateways = _CURRENT.get() or (_listening[0] if len(_listening) == 1 else None)
    return None if sys.is_finalizing() else gateways


def _wrap_starts() -> None:
    """Wrap all ways to start a process; those of multiprocessing after its import, too."""
    wrap_once(subprocess.Popen, "__init__", _wrap_start, _MARK)
    for name in ("posix_spawn", "posix_spawnp"):
        wrap_once(os, name, _wrap_posix_spawn, _MARK)
    for owner, name in parts_of("multiprocessing.process", ("BaseProcess",), ("start", "_bootstrap")):
        wrap_once(owner, name, _wrap_process_start if name == "start" else _wrap_bootstrap, _MARK)
    if util := sys.modules.get("multiprocessing.util"):
        wrap_once(util, "spawnv_passfds", _wrap_spawnv, _MARK)


def _wrap_start(start: Callable[..., None]) -> Callable[..., None]:
    @wraps(start)
    def __init__(process: Any, *args: Any, **options: Any) -> None:  # noqa: N807 - it takes the place of one
        gateways = _current_gateways()
        if gateways is None:
            start(process, *args, **options)
            return
        arguments = _START.bind(process, *args, **options).arguments
        own = arguments.get("env")
        environment = dict(os.environ) if own is None else dict(own)
        arguments["env"] = {**environment, **gateways.variables(environment)}
        arguments.pop("self")
        start(process, **arguments)
        gateways.add(process)

    return __init__


def _wrap_posix_spawn(spawn: Callable[..., int]) -> Callable[..., int]:
    @wraps(spawn)
    def posix_spawn(path: Any, argv: Any, env: Any, /, **options: Any) -> int:
        gateways = _current_gateways()
        own = os.environ if env is None and _MAY_INHERIT else env
        if gateways is None or not isinstance(own, Mapping):  # the error of other values is Python's
            return spawn(path, argv, env, **options)
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in own.items()}
        added = gateways.variables(environment)
        pid = spawn(path, argv, {**environment, **added} if added else env, **options)
        gateways.add_pid(pid)
        return pid

    return posix_spawn


# Private steps of multiprocessing, which takes no environment (decision 105). A child that is forked has its variables
# on the process object; one that is spawned gets them by env(1), so that this process's own environment stays.
def _wrap_process_start(start: Callable[..., None]) -> Callable[..., None]:
    @wraps(start)
    def start_process(process: Any) -> None:
        gateways = _current_gateways()
        if gateways is None:
            start(process)
            return
        setattr(process, _VARIABLES, gateways.variables(os.environ))
        try:
            start(process)
        finally:
            vars(process).pop(_VARIABLES, None)
        gateways.add_pid(process.pid)

    return start_process


def _wrap_bootstrap(bootstrap: Callable[..., int]) -> Callable[..., int]:
    @wraps(bootstrap)
    def run_forked(process: Any, *args: Any, **options: Any) -> int:
        os.environ.update(vars(process).pop(_VARIABLES, {}))
        return bootstrap(process, *args, **options)

    return run_forked


def _wrap_spawnv(spawn: Callable[..., int]) -> Callable[..., int]:
    @wraps(spawn)
    def spawnv_passfds(path: Any, args: Any, passfds: Any) -> int:
        is_tracker = any(b"resource_tracker" in os.fsencode(each) for each in args)  # it runs nothing of the agent
        gateways = None if is_tracker else _current_gateways()
        env = shutil.which("env")
        if gateways is None or env is None or not (added := gateways.variables(os.environ)):
            return spawn(path, args, passfds)
        # env(1) takes the program by its path, as the first of `args` may be any name; "=" in it sets a variable.
        own = [os.fsencode(f"{name}={value}") for name, value in added.items()]
        shell = [b"sh", b"-c", b'exec "$0" "$@"'] if b"=" in os.fsencode(path) else []
        pid = spawn(os.fsencode(env), [b"env", *own, *shell, path, *args[1:]], passfds)
        gateways.add_pid(pid)  # a fork server serves later sessions, too
        return pid

    return spawnv_passfds


def _played_turn(session: Session) -> PlayedTurn:
    listener = PLAYED_TURN.get()

    def send(event: Event) -> None:
        if listener and event.kind == "log":
            listener.log_note(event.text)

    return PlayedTurn(
        session, send, CURRENT_RECORDER.get(), contextvars.copy_context(), listener, counts_attempts=False
    )


def _other_turn() -> PlayedTurn | None:
    """The turn of a call between turns; None, which refuses the call, in a replay."""
    turns = [gateways.turn for gateways in [*_listening] if gateways.turn]
    if len(turns) == 1:
        return turns[0]
    if is_replaying():
        return None
    for turn in turns:
        turn.note_missed_call()
    return PlayedTurn(Session("between turns"), lambda _: None, None, contextvars.copy_context(), None)
