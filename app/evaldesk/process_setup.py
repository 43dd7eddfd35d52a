"""Settings of an own process: garbage collection, limit of open files, end of the process.

And what the code in it changed of what all of it shares, which processes it left behind, and whether an import did
what each process has to do for itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import random
import re
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, NamedTuple, NoReturn

parsing = Lock()
"""Held while Python text becomes a tree: 3.11 counts the depth of two trees as that of one, and raises SystemError."""
# Pauses of several threads nest; the collector goes on after the last one.
_lock = Lock()
_n_paused = 0


def prepare_litellm() -> None:
    """Keep LiteLLM from fetching a price map and from reading a `.env` on import; needed before it is imported."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")


def prepare_numpy() -> None:
    """Import numpy with one thread for its matrices, unless it is there already; programs that are started see nothing.

    OpenBLAS ends its threads whenever the process forks, as uvloop does to start a program. A product of matrices in
    another thread would then wait for them for ever.
    """
    if "numpy" in sys.modules or "OPENBLAS_NUM_THREADS" in os.environ:
        return
    os.putenv("OPENBLAS_NUM_THREADS", "1")  # not in os.environ, which a program may be started with at this moment
    try:
        importlib.import_module("numpy")
    finally:
        os.unsetenv("OPENBLAS_NUM_THREADS")


UNTIL_TRIALS = 300_000
"""More objects than a command makes before its first trial (180,000), and it keeps nearly all of them."""


def collect_seldom(n_new: int = 50_000) -> None:
    """Let a process that ends with its command look for garbage less often: its imports and results are none."""
    gc.set_threshold(n_new, 20, 100)


@contextmanager
def gc_paused() -> Iterator[None]:
    """No collection while something large is imported or read: it takes a third to half of the time, for nothing.

    May be nested, and entered by several threads at once; the last to leave starts the collector again. A collector
    that other code switched off stays off.
    """
    global _n_paused  # noqa: PLW0603
    with _lock:
        was_on = gc.isenabled() or _n_paused > 0
        _n_paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _n_paused -= 1
            if was_on and not _n_paused:
                gc.enable()


NOT_WAITED_FOR: set[str] = set()
"""Libraries whose threads may hold up the end of this process for minutes, as those of Ray do without a head node."""


def end_process(code: int) -> NoReturn:
    """End the process; at once where threads may hold it up. (decision 167)

    The collector does not look through all that was imported once more: that takes 200 ms, for nothing.
    """
    if NOT_WAITED_FOR:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    gc.freeze()
    sys.exit(code)


WANTED = 4096


def allow_open_files() -> None:
    """Raise the soft limit to WANTED, as far as the hard one lets it: macOS gives 256, and each open page is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


WORKER_VARIABLE = "EVALDESK_WORKER"
"""Marks a worker and the processes that it starts, so that those can be found when it is gone."""
MAX_ROUNDS = 20
_GROUPS, _GROUP = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"), "/evaldesk-"
# A mark that a daemon keeps when it clears its environment: decision 099.
_RLIMIT_LOCKS = 10  # Linux counts no locks against it since 2.4, and hands it on as every limit


PLAYED = "evaldesk.played"
"""The OpenTelemetry attribute of resources of agents that Evaldesk plays: their traffic is no user's."""
RESOURCE_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"
PLAYED_ATTRIBUTE = f"{PLAYED}=true"


def with_played(attributes: str) -> str:
    """A value of `OTEL_RESOURCE_ATTRIBUTES`, `name=value,...` with percent escapes, with `evaldesk.played` at its end.

    The attributes of the user stay as they are, also those that no SDK can read.
    """
    if has_played(attributes):
        return attributes
    return ",".join((*(item for item in attributes.split(",") if item.strip()), PLAYED_ATTRIBUTE))


def has_played(attributes: str) -> bool:
    """Whether a value of `OTEL_RESOURCE_ATTRIBUTES` has `evaldesk.played`."""
    return any(item.partition("=")[0].strip() == PLAYED for item in attributes.split(","))


def mark_process(pid: int, mark: str) -> None:
    """Give a process, and its later children, the mark of a worker in a limit that means nothing (Linux).

    A program keeps it when it clears its environment; where this person may make control groups, it is in one of the
    mark, too. No mark takes away the one that was inherited.
    """
    if sys.platform == "linux":
        with suppress(OSError, ValueError):  # the process is gone, or its kernel knows no such limit
            _, most = resource.prlimit(pid, _RLIMIT_LOCKS)
            resource.prlimit(pid, _RLIMIT_LOCKS, (_limit_of(mark) if mark else most, most))
        if own := _own_group():
            with suppress(OSError):  # the process is gone
                group = f"{own}{_GROUP}{mark}" if mark else own.rpartition(_GROUP)[0] or own
                if mark:
                    os.mkdir(group)
                with open(f"{group}/cgroup.procs", "wb", buffering=0) as processes:
                    processes.write(b"%d" % pid)


def end_marked(mark: str) -> None:
    """Kill the processes of this machine that inherited the mark of a worker, also those with a session of their own.

    A process may start another while it is looked for, so that is done until none is left. Without `/proc`, nothing.
    """
    limit, variable, own = _limit_of(mark), f"{WORKER_VARIABLE}={mark}".encode(), _own_group()

    def is_marked(pid: int, group_pids: list[bytes]) -> bool:
        if _limit(pid) == limit or b"%d" % pid in group_pids:
            return True
        environment = _read(f"/proc/{pid}/environ")
        return variable in environment and variable in environment.split(b"\0")

    def look() -> list[int]:
        group_pids = _read(f"{own}{_GROUP}{mark}/cgroup.procs").split() if own else []
        return [pid for pid in _pids() if is_marked(pid, group_pids)]

    _kill_each(look)
    for name in os.listdir(own) if own else ():
        if name.startswith(_GROUP[1:]):
            with suppress(OSError):  # it is in use, by others or by what still ends
                os.rmdir(f"{own}/{name}")


def _own_group() -> str:
    """The control group of this process, of version 2; empty where this person may not make others below it."""
    _, is_there, path = _read("/proc/self/cgroup").decode().rpartition("0::")
    groups = [f"{top}{path.strip().rstrip('/')}" for top in _GROUPS if is_there]
    return next((group for group in groups if os.access(f"{group}/cgroup.procs", os.W_OK)), "")


def _limit_of(mark: str) -> int:
    return int(mark[:15], 16)


def _limit(pid: int) -> int:
    try:
        return resource.prlimit(pid, _RLIMIT_LOCKS)[0]
    except OSError:
        return resource.RLIM_INFINITY  # of another person, or gone


def end_descendants() -> None:
    """Kill the children of this process and theirs, with the orphans that it adopted."""
    _kill_each(lambda: descendants(os.getpid()))


def adopt_orphans() -> None:
    """Let processes whose parent is gone become children of this one and not of the first process of the machine."""
    if sys.platform == "linux":
        # Orphans of daemons become our children, so they can be found and killed: decision 099.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 4, 24
_CAP_SYS_PTRACE = 19
_CAPABILITIES = 0x20080522  # the version of the two calls, as linux/capability.h has it


def hide_memory() -> None:
    """Let no process of the same user read the memory of this one: it holds expectations."""
    if sys.platform == "linux":
        # Without it a player of the same user could attach a debugger: decision 065.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def give_up_tracing() -> None:
    """Give up, for this process and all that it starts, the right of root to read the memory of any process."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None)
    # The bounding set too, so that no program that is started gets the right back: decision 065.
    libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE, 0, 0, 0)
    head, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(head, sets) == 0:
        for at in range(3):  # effective, permitted, inheritable
            sets[at] &= ~(1 << _CAP_SYS_PTRACE)
        libc.capset(head, sets)


def _kill_each(look: Callable[[], list[int]]) -> None:
    killed: set[int] = set()
    for _ in range(MAX_ROUNDS):
        pids = [pid for pid in look() if pid not in killed]
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(pids)  # and look again: one of them may have forked meanwhile (decision 099)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """The processes below that one, from the top."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def children(pid: int) -> list[int]:
    """The processes that this one is the parent of."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [child for thread in threads for child in map(int, _read(f"/proc/{pid}/task/{thread}/children").split())]


def bound_memory(mib: int) -> None:
    """Bound the memory of this process and of its later children, each, for good (Linux)."""
    # RLIMIT_AS would count reserved address space, 64 MiB a thread: decision 074.
    resource.setrlimit(resource.RLIMIT_DATA, (mib * 2**20, mib * 2**20))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # of another person, or gone


SET_BY_LIBRARIES = frozenset(
    {"GRPC_ENABLE_FORK_SUPPORT", "LITELLM_MODE", "TIKTOKEN_CACHE_DIR", "TOKENIZERS_PARALLELISM"}
)
"""Variables that libraries set for themselves when they are imported, which may be in the middle of a first trial."""

_OLD_NAMES = ("RLIMIT_OFILE",)
_LIMITS = {name: n for name, n in vars(resource).items() if name.startswith("RLIMIT_") and name not in _OLD_NAMES}


class _State(NamedTuple):
    """The settings of a process that all code in it shares; `umask` is -1 where it cannot be read."""

    folder: str
    umask: int
    recursion_limit: int
    socket_timeout: float | None
    path: tuple[object, ...]
    limits: tuple[tuple[int, int], ...]
    environment: dict[Any, Any]

    def changes(self, now: _State) -> tuple[str, ...]:
        """The settings that are another now, in words; of variables their names alone, since values may be secret."""
        settings = (
            ("the working folder", self.folder, now.folder),
            ("the umask", f"{self.umask:03o}", f"{now.umask:03o}"),
            ("the recursion limit", self.recursion_limit, now.recursion_limit),
            ("the socket timeout", self.socket_timeout, now.socket_timeout),
            *zip(_LIMITS, self.limits, now.limits, strict=True),
        )
        sentences = [f"{name} from {before} to {after}" for name, before, after in settings if before != after]
        if _own_entries(self) != _own_entries(now):
            sentences.append("sys.path")
        names = sorted(_changed_names(self.environment, now.environment))
        if names:
            sentences.append(f"the environment: {', '.join(names)}")
        return tuple(sentences)


def _state() -> _State:
    """The settings at this moment; they are read before and after each trial."""
    return _State(
        folder=working_folder(),
        umask=_umask(),
        recursion_limit=sys.getrecursionlimit(),
        socket_timeout=socket.getdefaulttimeout(),
        path=tuple(sys.path),
        limits=tuple(map(resource.getrlimit, _LIMITS.values())),
        # what `os.environ` holds; to decode each variable takes longer than all else here
        environment=dict(getattr(os.environ, "_data", os.environ)),
    )


class ProcessWatch:
    """Compares the shared settings of this process with those of the moment at which `changes` was called first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._first: _State | None = None
        self._last: tuple[_State, tuple[str, ...]] | None = None

    def changes(self) -> tuple[str, ...]:
        """The settings that were changed since the first call, in words."""
        now, last = _state(), self._last
        if last and last[0] == now:
            return last[1]
        with self._lock:
            if self._first is None:
                self._first = now
        sentences = self._first.changes(now)
        self._last = now, sentences
        return sentences


def _changed_names(before: dict[Any, Any], now: dict[Any, Any]) -> set[str]:
    names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    return {os.fsdecode(each) for each in names if each in before or os.fsdecode(each) not in SET_BY_LIBRARIES}


def _own_entries(state: _State) -> list[str]:
    """`sys.path` without additions of packages: folders inside of them, and the working folder at the end.

    LiteLLM appends the latter, at an import that may come with the first price that is asked for.
    """
    entries = [entry for entry in map(str, state.path) if "site-packages/" not in entry]
    return entries[:-1] if entries and entries[-1] == state.folder else entries


def working_folder() -> str:
    """The working folder, which may be gone."""
    try:
        return os.getcwd()
    except OSError:
        return "a folder that is gone"


def _umask() -> int:
    """Read and not set: setting it would change files that other threads create at that moment."""
    try:
        with open("/proc/self/status", "rb") as status:
            match = re.search(rb"^Umask:\s*(\d+)", status.read(), re.MULTILINE)
    except OSError:
        return -1
    return int(match[1], 8) if match else -1


MAX_PATH = 100
_LIB = os.path.dirname(os.__file__) + os.sep
_OF_IMPORTS = ("<frozen importlib._bootstrap_external>", "<frozen importlib._bootstrap>")
_PACKAGES = ("site-packages", "dist-packages")
_OF_FILES = frozenset(
    {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "shutil.rmtree"}
)
_OF_OTHERS = {
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.connect": "opens a connection",
    "sqlite3.connect": "opens a database",
    "subprocess.Popen": "starts a process",
}


class ImportWatch:
    """Sees what an agent does while it is imported that each player has to do for itself. `found` says it, in words.

    With `sees_files` this is also what it does to files, processes and connections: by an audit hook, which cannot be
    taken away again and slows down all that follows, so only where a process plays a single trial.
    """

    def __init__(self, *, sees_files: bool) -> None:
        self.found = ""
        self.is_seeded = False
        self._roots: tuple[str, ...] = ()
        if sees_files:
            sys.addaudithook(self._audited)

    @contextmanager
    def of(self, *folders: str) -> Iterator[None]:
        """Watch the block, in which an agent is imported whose own files are in these folders."""
        originals = os.urandom, random._urandom, random.seed  # type: ignore[attr-defined]
        self._roots = tuple(os.path.join(os.path.abspath(each), "") for each in folders if each)
        # `random` holds its own reference to urandom, under a private name: decision 222.
        os.urandom = random._urandom = self._drawing(os.urandom)  # type: ignore[attr-defined]
        random.seed = self._seeding(random.seed)
        try:
            yield
        finally:
            os.urandom, random._urandom, random.seed = originals  # type: ignore[attr-defined]
            self._roots = ()

    def _drawing(self, draw: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def urandom(size: int) -> bytes:
            if self._is_of_agent():
                self.found = "it draws a random name or key while it is imported"
            return draw(size)

        return urandom

    def _seeding(self, seed: Callable[..., None]) -> Callable[..., None]:
        def seeded(a: Any = None, version: int = 2) -> None:
            self.is_seeded |= a is not None
            seed(a, version)

        return seeded

    def _is_of_agent(self) -> bool:
        """Whether the nearest caller outside of the standard library is a file of the agent."""
        frame = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            is_package = any(f"{os.sep}{each}{os.sep}" in file for each in _PACKAGES)
            if is_package or not file.startswith((_LIB, "<")):
                return not is_package and os.path.abspath(file).startswith(self._roots)
            frame = frame.f_back  # type: ignore[assignment]
        return False

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._roots or not (event in _OF_OTHERS or (event in _OF_FILES and _is_change(event, args))):
            return
        if event in _OF_OTHERS:
            self.found = f"it {_OF_OTHERS[event]} while it is imported"
        elif sys._getframe(1).f_code.co_filename not in _OF_IMPORTS:  # which write what they compile
            self.found = f"it changes files while it is imported: {str(args[0])[:MAX_PATH]}"


def _is_change(event: str, args: tuple[Any, ...]) -> bool:
    flags = args[2] if event == "open" else os.O_WRONLY
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR)) and args[0] != os.devnull
