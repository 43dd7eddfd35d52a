"""A copy of the code that scores the trials of a run, taken before any code of its agent runs.

Graders import the functions of the user from this copy and never from the disk, which an agent of the same user can
write. Evaldesk's own files and those that an interpreter runs at its start cannot be given to a grader in this way: a
grader that would start after one of them changed is not started. (decision 470)
"""

from __future__ import annotations

import hashlib
import os
import re
import site
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import all_suffixes
from pathlib import Path

from evaldesk.engine.driver.code_files import MAX_BYTES, function_files, function_roots
from evaldesk.engine.frames import SourceCopy
from evaldesk.errors import UsageError
from evaldesk.model import Criterion
from evaldesk.paths import PACKAGE

MAX_COPY = 16 * 1024 * 1024
"""Bytes of all copies; a file beyond them is not copied, and grades nothing once it was changed."""
CACHE = "__pycache__"
NO_BYTECODE = {"PYTHONPYCACHEPREFIX": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
"""Variables by which Python looks for bytecode where no file can be."""
DATA = "data file "
DATA_ENDINGS = (".csv", ".json", ".jsonl", ".md", ".parquet", ".pkl", ".toml", ".tsv", ".txt", ".xml", ".yaml", ".yml")
"""Files that a function may compare answers with; databases and logs are written by agents as a matter of course."""
SETS = (".evalset.json", ".test.json")
"""Eval sets, which people edit while runs are played; a run has the cases as they were."""
MAX_DATA = 5_000
MAX_FOLDERS = 2_000
NO_MODULES = frozenset({"node_modules", "site-packages"})
"""Folders in which no function looks for its modules."""
MODULE_ENDINGS = tuple(all_suffixes())
STARTED = ("sitecustomize", "usercustomize")
"""Modules that an interpreter imports at its start."""


@dataclass(frozen=True, slots=True)
class GradingFiles:
    """`copy` has the user's functions. `own` are digests by path of Evaldesk's modules and of what an interpreter runs
    at its start, the standard library among it. `bytecode` are the states of what Python compiled of these modules,
    `data` those of the data files beside the user's functions, which are not copied.
    """

    copy: SourceCopy
    own: Mapping[str, bytes]
    bytecode: Mapping[str, tuple[int, ...]]
    data: Mapping[str, tuple[int, ...]]

    def changes(self) -> list[str]:
        """A phrase for each of these files that is not on the disk as it was: its name, and when it changed.

        Those of data files begin with DATA.
        """
        phrases = self._data_changes()
        for path, source in self.copy.sources.items():
            try:
                changed_at = clock_words(os.stat(path).st_ctime_ns)
                is_same = Path(path).read_bytes() == source.encode("latin-1")
            except OSError:
                phrases.append(f"{Path(path).name} (removed)")
                continue
            if not is_same:
                phrases.append(f"{Path(path).name} (at {changed_at})")
        return phrases

    def _data_changes(self) -> list[str]:
        phrases = []
        for path, state in self.data.items():
            try:
                now = os.stat(path)
            except OSError:
                phrases.append(f"{DATA}{Path(path).name} (removed)")
                continue
            if _state(now) != state:
                phrases.append(f"{DATA}{Path(path).name} (at {clock_words(now.st_ctime_ns)})")
        return phrases

    def variables(self) -> Mapping[str, str]:
        """Variables for a grader that starts now: once bytecode has changed it reads none, and compiles all sources.

        A player writes bytecode too, when it is the first to import a module.
        """
        return {} if _bytecode_states() == self.bytecode else NO_BYTECODE

    def check_own(self) -> None:
        """Raise UsageError where a file of Evaldesk, or a file that an interpreter runs at its start, has changed."""
        now = _own_digests()
        changed_paths = sorted(
            {path for path, _ in self.own.items() ^ now.items()}, key=lambda path: (path not in now, path)
        )
        if changed_paths:
            raise UsageError(
                f"{changed_paths[0]} was changed after the run began, so no further grader is started; "
                "start the run again once it is as it should be"
            )


def clock_words(moment_ns: int) -> str:
    """The time of day of a moment of the Unix time, on the clock of this machine."""
    return time.strftime("%H:%M:%S", time.localtime(moment_ns / 1e9))


def changed_since(paths: Iterable[str], moment_ns: int) -> dict[str, int]:
    """The files that were changed after that moment, and when; no program can set this time."""
    change_times = {}
    for path in paths:
        with suppress(OSError):
            if (changed_at := os.stat(path).st_ctime_ns) > moment_ns:
                change_times[path] = changed_at
    return change_times


def freeze(criteria: Sequence[Criterion]) -> GradingFiles:
    """Copy the code that scores the trials of these criteria, without unreadable files."""
    sources: dict[str, str] = {}
    n_bytes = 0
    for path in function_files(criteria):
        with suppress(OSError):
            content = Path(path).read_bytes()
            n_bytes += len(content)
            if len(content) <= MAX_BYTES and n_bytes <= MAX_COPY:
                sources[path] = content.decode("latin-1")
    from evaldesk.metrics import METRICS  # not for a driver that only plays

    folders = _folders_below(function_roots(criteria))
    copy = SourceCopy(
        sources,
        time.time_ns(),
        {**_folder_inodes(), **folders.inodes},
        tuple(folders.roots),
        tuple(folders.links),
        METRICS.plugin_targets(),
    )
    return GradingFiles(copy, _own_digests(), _bytecode_states(), dict(_data_states(sources)))


def _data_states(sources: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The first MAX_DATA files of data in the folders of these modules, and in the folders below them."""
    n = 0
    for folder in sorted({os.path.dirname(path) for path in sources}):
        for place in (folder, *(each.path for each in _entries(folder) if each.is_dir(follow_symlinks=False))):
            for entry in _entries(place):
                name = entry.name.lower()
                if name.endswith(DATA_ENDINGS) and not name.endswith(SETS) and n < MAX_DATA:
                    n += 1
                    with suppress(OSError):
                        yield entry.path, _state(entry.stat())


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted((each for each in entries if not each.name.startswith(".")), key=lambda each: each.name)
    return []


def _own_digests() -> dict[str, bytes]:
    digests = {**dict(_interpreter_states()), **_library_states()}
    for path in (*_modules(str(PACKAGE)), *_start_files()):
        with suppress(OSError):
            digests[path] = _digest(path)
    return digests


MAX_LINKS = 40
"""Links from one to the next, as in Linux."""
SETTLED_NS = 2_000_000_000
"""A file that changed less long ago may change again within one step of the clock of its file system."""
_DIGESTS: dict[str, tuple[tuple[int, ...], bytes]] = {}


def _digest(path: str) -> bytes:
    """The digest of a file, which is read only after a change: no program sets this time."""
    state = _state(os.stat(path))
    known_state, digest = _DIGESTS.get(path, ((), b""))
    if known_state == state:
        return digest
    with open(path, "rb", buffering=0) as file:
        state = _state(os.fstat(file.fileno()))  # before its content, which may be a later one but no earlier one
        digest = hashlib.sha256(file.read()).digest()
    if state[-1] + SETTLED_NS < time.time_ns():
        _DIGESTS[path] = state, digest
    return digest


def _state(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns


def _interpreter_states() -> Iterator[tuple[str, bytes]]:
    """The interpreter at each step of its links, and the file that leads it to its packages."""
    path = sys.executable
    places = [str(Path(path).parents[1] / "pyvenv.cfg"), path]
    while os.path.islink(path) and len(places) < MAX_LINKS:
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        places.append(path)
    for place in places:
        with suppress(OSError):
            yield place, repr(_state(os.lstat(place))).encode()


def _bytecode_states() -> dict[str, tuple[int, ...]]:
    states = {}
    for top in (str(PACKAGE), *_LIBRARY, *_package_folders()):
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if name not in NOT_STARTED]
            if os.path.basename(folder) == CACHE:
                for path in (os.path.join(folder, name) for name in files if _READ_BYTECODE.search(name)):
                    with suppress(OSError):
                        states[path] = _state(os.stat(path))
    return states


_READ_BYTECODE = re.compile(rf"\.{re.escape(sys.implementation.cache_tag or '')}(?:\.opt-\w+)?\.pyc$")
"""Names of bytecode that this interpreter reads: other interpreters and pytest have names of their own."""


_LIBRARY = tuple(dict.fromkeys([sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]))
_INSTALLED = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
NOT_STARTED = frozenset(
    {"site-packages", "dist-packages", "test", "idlelib", "tkinter", "lib2to3", "turtledemo", "ensurepip"}
)
"""Folders of the standard library that no worker process imports before its first job."""
PACKAGES = frozenset({"msgspec", "typing_extensions", "_distutils_hack"})
"""Installed packages that a grader imports before its first job; later imports are its own matter."""


def _library_states() -> dict[str, bytes]:
    """The states of modules that a grader imports before it can look at them itself, and of archives in their way."""
    archives = (path for path in sys.path if path.endswith(".zip"))
    modules = (path for folder in (*_LIBRARY, *_package_folders()) for path in _modules(folder, NOT_STARTED))
    states = {}
    for path in (*archives, *modules, *_find_modules(_INSTALLED, PACKAGES, is_path_file=False)):
        with suppress(OSError):
            states[path] = repr(_state(os.stat(path))).encode()
    return states


def _package_folders() -> list[str]:
    return [folder for place in _INSTALLED for name in sorted(PACKAGES) if os.path.isdir(folder := f"{place}/{name}")]


def _folder_inodes() -> dict[str, int]:
    """The folders of the standard library and of Evaldesk, and those of installed packages, by path."""
    inodes: dict[str, int] = {}
    for place in dict.fromkeys([*_LIBRARY, *_INSTALLED, str(PACKAGE)]):
        with suppress(OSError):
            inodes[place] = os.lstat(place).st_ino
            _add_folders(place, inodes, is_deep=place not in _INSTALLED)
    return inodes


@dataclass(slots=True)
class _Folders:
    """The inodes of folders by path; `roots` are those all of whose folders are there but for links."""

    inodes: dict[str, int] = field(default_factory=dict)
    roots: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def _folders_below(roots: Iterable[str]) -> _Folders:
    """The folders below those of the user's functions and of PYTHONPATH: a moved one may hold other modules."""
    below = _Folders()
    for root in dict.fromkeys((*roots, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))):
        top = os.path.abspath(root)
        for n, (place, folders, _) in enumerate(os.walk(top)):
            with suppress(OSError):
                below.inodes[place] = os.lstat(place).st_ino
            below.links += (path for name in folders if os.path.islink(path := os.path.join(place, name)))
            folders[:] = [name for name in folders if name not in NO_MODULES and not name.startswith(".")]
            if n > MAX_FOLDERS:
                break
        else:
            below.roots.append(top)
    return below


def _add_folders(place: str, inodes: dict[str, int], *, is_deep: bool) -> None:
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name != CACHE and entry.is_dir(follow_symlinks=False):
                inodes[entry.path] = entry.inode()
                if is_deep and entry.name not in NOT_STARTED:
                    _add_folders(entry.path, inodes, is_deep=True)


def _modules(folder: str, left_out: frozenset[str] = frozenset()) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != CACHE and entry.name not in left_out:
                    yield from _modules(entry.path, left_out)
            elif entry.name.endswith(MODULE_ENDINGS):
                yield entry.path


def _start_files() -> Iterator[str]:
    """The files that every start of this interpreter runs, and modules that hide one installed or of its library."""
    extra_folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    installed = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    yield from _find_modules(
        dict.fromkeys([*installed, site.getusersitepackages(), *extra_folders]), STARTED, is_path_file=True
    )
    yield from _find_modules(extra_folders, sys.stdlib_module_names | _installed_names(installed), is_path_file=False)


def _installed_names(folders: Iterable[str]) -> frozenset[str]:
    """The first names of the installed modules and packages."""
    names = {"evaldesk"}
    for folder in folders:
        with suppress(OSError):
            names |= {name.partition(".")[0] for name in os.listdir(folder)}
    return frozenset(names)


def _find_modules(folders: Iterable[str], names: Iterable[str], *, is_path_file: bool) -> Iterator[str]:
    """The modules and packages of these names in the folders, and the `.pth` files where they are asked for."""
    name_set = frozenset(names)
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, ending = entry.name.partition(".")
                if is_path_file and ending == "pth":
                    yield entry.path
                elif stem in name_set:
                    yield entry.path if dot else os.path.join(entry.path, "__init__.py")
