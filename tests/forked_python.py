"""Starts `python -m MODULE` of ours as a fork of one that has imported the module already.

The tests start more than a thousand workers and commands, and each takes a third of a CPU second, or two, to import
what all others did before it. What is started here is a child of the process that starts it, with the arguments,
environment, files, folder and session that it names, so that nobody sees a difference but by the clock. A test of the
start itself uses the fixture `started_anew`. This file as a program is the one that is forked; it imports none of ours.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

ROOM = 100_000
"""Bytes for the environment of a fork, where the kernel shows that of a program."""
HIGH = 512
"""Where the files of a fork are before each has its own number."""
ROOM_VARIABLE = "ROOM"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""NumPy starts a thread for each other core when it is imported, and only a process with one thread is forked."""
FLAGS = ("-P", "-X", "faulthandler", "-m")
PLAIN = ("-P", "-m")
WORKER = "evaldesk.engine.worker.main"
INSTANCE = "evaldesk.integrations.openhands.child"
GRADER = (WORKER, "evaldesk.metrics:preload")
IMPORTED: Mapping[tuple[str, ...], Sequence[str]] = {
    (*FLAGS, WORKER, "player"): (WORKER,),
    (*FLAGS, WORKER, "zygote"): (WORKER, "evaldesk.engine.worker.zygote"),
    (*FLAGS, WORKER, "grader"): GRADER,
    (*FLAGS, WORKER, "grader_with_litellm"): GRADER,
    (*PLAIN, INSTANCE): (INSTANCE,),
}
"""What is imported before the fork, by the arguments of Python: its flags, the module and one of those that follow."""


class ForkedPython:
    """The processes that are forked, each of which has imported something else and is started when it is needed."""

    def __init__(self) -> None:
        self._templates: dict[Sequence[str], _Template] = {}
        self._starting = Lock()
        self._python = _python_variables(os.environ)
        self._is_on = True
        self.n_forks = 0

    @classmethod
    def of_this_process(cls) -> ForkedPython:
        """Of one process that is a fork of this one, which has imported what any of them does; it has one thread."""
        forked = cls()
        template = _Template.of_this_process()
        forked._templates = {tuple(names): template for names in IMPORTED.values()}
        return forked

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Let all processes start with Python itself."""
        self._is_on = False
        try:
            yield
        finally:
            self._is_on = True

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let `subprocess.Popen`, and all that uses it, fork where that is the same."""
        if not CAN_FORK:
            yield
            return
        usual = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        signature = inspect.signature(usual)

        def execute(process: Any, *arguments: Any) -> None:
            named = signature.bind(process, *arguments).arguments
            if not self._fork(process, named):
                usual(process, *arguments)

        subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]
        try:
            yield
        finally:
            subprocess.Popen._execute_child = usual  # type: ignore[attr-defined]
            for template in self._templates.values():
                template.close()

    def start_ahead(self) -> None:
        """Start all of them: those that come later would have what a test has set, such as limits and variables."""
        for names in {tuple(names) for names in IMPORTED.values() if CAN_FORK}:
            self._started(names)

    def _fork(self, process: Any, asked: Mapping[str, Any]) -> bool:
        environment = os.environ if asked["env"] is None else asked["env"]
        template = self._template(asked["args"], environment)
        if template is None or asked["preexec_fn"] or asked["shell"] or not asked["close_fds"]:
            return False
        sys.audit("subprocess.Popen", asked["args"][0], asked["args"], asked["cwd"], asked["env"])
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        fds = [number if given == -1 else given for number, given in enumerate(streams)]
        request = {
            "arguments": list(map(os.fspath, asked["args"])),
            "environment": dict(environment),
            "cwd": os.fspath(asked["cwd"] or os.getcwd()),
            "is_leader": asked["start_new_session"],
            "places": [0, 1, 2, *asked["pass_fds"]],
        }
        pid = template.fork(request, [*fds, *asked["pass_fds"]])
        if not pid:
            return False
        self.n_forks += 1
        process.pid = pid
        process._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        process._close_pipe_fds(*(asked[name] for name in ends))
        return True

    def _template(self, command: object, environment: Mapping[str, str]) -> _Template | None:
        if not self._is_on or not isinstance(command, list | tuple) or command[0] != sys.executable:
            return None
        names = next((names for key, names in IMPORTED.items() if _is_begun(key, command[1:])), None)
        return self._started(tuple(names)) if names and _python_variables(environment) == self._python else None

    def _started(self, names: Sequence[str]) -> _Template:
        with self._starting:
            if names not in self._templates:
                self._templates[names] = _Template.started(names)
            return self._templates[names]


CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call, of which the order of the last two arguments differs."""
CAN_FORK = sys.platform == "linux" and platform.machine() in CLONE


def _is_begun(key: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether the arguments are those of the key: flags and module in their order, a word of the worker anywhere."""
    at = key.index("-m") + 2
    return tuple(arguments[:at]) == tuple(key[:at]) and {*key[at:]} <= {*arguments[at:]}


def _python_variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


class _Template:
    """A process that is forked, as the one sees it that asks for forks; any thread may."""

    def __init__(self, asking: socket.socket, process: subprocess.Popen[bytes] | None) -> None:
        self._lock = Lock()
        self._asking, self._process = asking, process

    @classmethod
    def started(cls, names: Sequence[str]) -> _Template:
        """One that starts with Python and imports these."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        flags = next(key[: key.index("-m")] for key, imported in IMPORTED.items() if tuple(imported) == tuple(names))
        command = [sys.executable, *flags, __file__, str(theirs.fileno()), *names]
        environment = {**os.environ, ROOM_VARIABLE: "-" * ROOM, **ONE_THREAD}
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        return cls(ours, process)

    @classmethod
    def of_this_process(cls) -> _Template:
        """A fork of this process; it ends with it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            ours.close()
            _run(_serve(theirs, _sibling_fork()))
            raise SystemExit(0)
        theirs.close()
        return cls(ours, None)

    def fork(self, request: Mapping[str, Any], fds: Sequence[int]) -> int:
        """The process id of a fork, which is a child of this process; 0 where it cannot be."""
        with self._lock, os.fdopen(os.memfd_create("request"), "wb") as said:
            said.write(json.dumps(request).encode())
            said.flush()
            try:
                socket.send_fds(self._asking, [b"fork"], [said.fileno(), *fds])
                return int(self._asking.recv(100) or b"0")
            except OSError:  # it is gone
                return 0

    def close(self) -> None:
        """End it."""
        self._asking.close()
        if self._process:
            self._process.wait(120)


def _serve(asked: socket.socket, fork: Callable[[], int]) -> dict[str, Any]:
    """Fork when asked; returns in each fork alone, which has become what it is asked to be."""
    while True:
        data, fds, _, _ = socket.recv_fds(asked, 100, 253)
        if not data:
            os._exit(0)
        pid = fork() if len(os.listdir("/proc/self/task")) == 1 else -1
        if pid == 0:
            return _became(*fds)
        for fd in fds:
            os.close(fd)
        asked.send(str(max(pid, 0)).encode())


def _became(said: int, *fds: int) -> dict[str, Any]:
    with os.fdopen(said, "rb") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
    if request["is_leader"]:
        os.setsid()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH) for fd in fds]
    for fd, place in zip(high, request["places"], strict=True):
        os.dup2(fd, place)
    kept = {*request["places"]}
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            _close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _show(b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in request["environment"].items()))
    return request


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:  # that of the listing
        return


def _show(environment: bytes) -> None:
    """Let the kernel show these variables as those with which the program began; no pointer leads there any more."""
    with open("/proc/self/stat", "rb") as stat:
        start, end = map(int, stat.read().rpartition(b")")[2].split()[47:49])
    if len(environment) > end - start:
        sys.exit("the environment is larger than its room")
    ctypes.memmove(start, environment.ljust(end - start, b"\0"), end - start)


def _sibling_fork() -> Callable[[], int]:
    """`os.fork`, but the new process is a child of the parent of this one."""
    number = CLONE[platform.machine()]
    library, python = ctypes.PyDLL(None), ctypes.pythonapi
    library.syscall.restype = ctypes.c_long
    at = ctypes.c_void_p()
    flags = _CLONE_PARENT | signal.SIGCHLD
    if library.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(at), 0, 0, 0) == 0:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    places = (at, 0) if number == 56 else (0, at)

    def fork() -> int:
        python.PyOS_BeforeFork()
        pid = int(library.syscall(ctypes.c_long(number), ctypes.c_ulong(flags), None, None, *places))
        if pid == 0:
            python.PyOS_AfterFork_Child()
        else:
            python.PyOS_AfterFork_Parent()
        return pid

    return fork


_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_GET_TID_ADDRESS = 40


def import_ahead(names: Sequence[str]) -> None:
    """Import these; the first is that which is run later."""
    for name in names:
        module, _, function = name.partition(":")
        found = importlib.import_module(module)
        if function:
            getattr(found, function)()
    main = sys.modules.pop(names[0])  # it is run as the main module, which is no other's
    package, _, own = names[0].rpartition(".")
    assert getattr(sys.modules[package], own) is main
    delattr(sys.modules[package], own)


def _run(become: Mapping[str, Any]) -> None:
    sys.orig_argv[:] = become["arguments"]
    sys.argv = become["arguments"][become["arguments"].index("-m") + 1 :]
    runpy._run_module_as_main(sys.argv[0])  # type: ignore[attr-defined]


if __name__ == "__main__":
    import_ahead(sys.argv[2:])
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])), _sibling_fork())
    gc.unfreeze()
    _run(request)
