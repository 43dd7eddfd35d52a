"""The files that a player in a sandbox or a container does not see, and its own code, which it does."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from evaldesk.desk.runs.set_copies import SetCopies
from evaldesk.engine.launch import (
    ContainerLauncher,
    Launcher,
    ProcessLauncher,
    SandboxLauncher,
    file_identities,
    launcher_of,
)
from evaldesk.llm.price_list import price_list
from evaldesk.model import AgentRef, RunConfig
from evaldesk.paths import EVALSET_SUFFIX, PACKAGE
from evaldesk.run_options import SANDBOX
from evaldesk.settings import Settings

MAX_SEEN = 20_000
"""Files and folders that are looked at for eval sets below one folder."""
SET_ENDINGS = (EVALSET_SUFFIX, ".test.json")
PACKAGES = frozenset({"node_modules", "site-packages", "__pycache__"})
"""Folders that are looked at last, for the same files as a set only."""
REPOSITORIES = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", ".sl", ".pijul", "_darcs"})
"""Folders of version control, in which earlier versions of eval sets are."""
STORE_VARIABLES = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")


def launcher_of_run(settings: Settings, config: RunConfig) -> Launcher:
    """The place where the trials of a run are played; a sandbox and a container have no eval set in it."""
    if config.isolation == SANDBOX:
        return sandbox_launcher(settings, config)
    launcher = launcher_of(config.agent)
    if isinstance(launcher, ContainerLauncher):
        return replace(launcher, hidden_paths=tuple(_inside_root(_hidden_paths(settings, config), config.agent)))
    return launcher


def sandbox_launcher(settings: Settings, config: RunConfig) -> SandboxLauncher:
    """The launcher of players that see no eval set, no database and nothing of the home but their own code."""
    agent, hidden_paths = config.agent, _hidden_paths(settings, config)
    recordings = [config.recording.folder] if config.recording.mode != "off" else []
    return SandboxLauncher(
        ProcessLauncher(agent.python),
        hidden_paths=tuple(hidden_paths),
        visible=(*_code_of(agent), *_interpreters(agent), *recordings),
        read_only=(str(PACKAGE), sysconfig.get_path("purelib")),
        identities=tuple(file_identities(hidden_paths)),
        left_out=STORE_VARIABLES if settings.store else (),
    )


def _inside_root(paths: Sequence[str], agent: AgentRef) -> Iterator[str]:
    """The outermost of the paths that a container would get with the agent's root, relative to it."""
    root, folder = (os.path.realpath(place) for place in (agent.root, agent.folder or agent.root))
    outermost: list[str] = []
    for path in sorted({os.path.realpath(each) for each in paths if agent.root and os.path.exists(each)}):
        is_of_agent = folder == path or folder.startswith(f"{path}{os.sep}")
        if not path.startswith(f"{root}{os.sep}") or is_of_agent:
            continue
        if not (outermost and path.startswith(f"{outermost[-1]}{os.sep}")):
            outermost.append(path)
            yield os.path.relpath(path, root)


def _hidden_paths(settings: Settings, config: RunConfig) -> list[str]:
    """Eval sets with their copies, version control, the database, the home, and sockets of other programs."""
    agent, store = config.agent, settings.store
    hidden_paths = [str(settings.state_folder), str(settings.evalset_folder), str(Path.home())]
    hidden_paths += [config.evalset_path] if config.evalset_path else []
    hidden_paths += [*_sockets(os.environ), *_disks()]
    hidden_paths += [store.host] if store and store.host.startswith("/") else []
    places = (str(settings.workspace), *map(str, settings.roots), agent.root, agent.folder)
    files = _Files()
    for folder in dict.fromkeys(filter(None, places)):
        hidden_paths += islice(_evalsets(folder, files), MAX_SEEN)
        hidden_paths += _repositories_above(folder)
    sets = [path for path in hidden_paths if path == config.evalset_path or path.endswith(SET_ENDINGS)]
    copies = SetCopies(dict.fromkeys(chain(sets, _files_in(settings.evalset_folder))))
    hidden_paths += filter(copies.has, dict.fromkeys(files.others))
    hidden_paths += filter(copies.is_same, dict.fromkeys(files.of_packages))
    return hidden_paths


def _code_of(agent: AgentRef) -> Iterator[str]:
    yield from filter(None, (agent.root, agent.folder))
    yield from filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    yield os.getcwd()


def _interpreters(agent: AgentRef) -> Iterator[str]:
    """Evaldesk's package, the interpreter with its packages, and the programs of PATH."""
    yield str(PACKAGE)
    yield from filter(None, (price_list(), sys.prefix, sys.base_prefix, *sys.path))
    python = Path(agent.python or sys.executable)
    yield from (str(place) for place in (python.parent.parent, python.resolve().parent.parent))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield folder
    for program in ("node", "npm"):  # what such a program is linked to lies beside it
        if path := shutil.which(program):
            yield str(Path(path).resolve().parent.parent)


def _sockets(environment: Mapping[str, str]) -> Iterator[str]:
    """The sockets of programs outside that run commands or read files for this user: session, terminals, containers."""
    user = os.getuid()
    yield from (f"/run/user/{user}", f"/tmp/tmux-{user}", "/run/screen", "/var/run/screen")  # noqa: S108
    yield from ("/run/docker.sock", "/var/run/docker.sock", "/run/podman", "/run/containerd", "/run/dbus")
    yield from filter(None, (environment.get("XDG_RUNTIME_DIR"), environment.get("TMUX", "").partition(",")[0]))
    yield from filter(None, (environment.get("SSH_AUTH_SOCK"), environment.get("SCREENDIR")))
    for name in ("DOCKER_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS"):
        form, _, path = environment.get(name, "").partition(":")
        path = path.removeprefix("path=").partition(",")[0].removeprefix("//")
        if form == "unix" and path.startswith("/"):
            yield path


def _disks() -> Iterator[str]:
    """The disks that this user may read as bytes."""
    with suppress(OSError):
        for entry in os.scandir("/dev"):
            if stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode) and os.access(entry.path, os.R_OK):
                yield entry.path


def _repositories_above(folder: str) -> Iterator[str]:
    """The git data of the folders around one: earlier versions of eval sets are in them."""
    for place in Path(folder).resolve().parents:
        yield from _git_data(place / ".git")


def _git_data(place: Path) -> Iterator[str]:
    """`.git`, and where it is a file, as in a worktree or a submodule, the folders that it points to."""
    if not place.exists():
        return
    yield str(place)
    if place.is_dir():
        return
    with suppress(OSError, UnicodeDecodeError):
        own = (place.parent / place.read_text("utf-8").removeprefix("gitdir:").strip()).resolve()
        if not (own / "HEAD").is_file():
            return
        yield str(own)
        yield str((own / (own / "commondir").read_text("utf-8").strip()).resolve())


def _files_in(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        yield from sorted(entry.path for entry in os.scandir(folder) if entry.is_file())


@dataclass(slots=True)
class _Files:
    """The files that are no eval sets by their name, and those of installed packages and of bytecode."""

    others: list[str] = field(default_factory=list)
    of_packages: list[str] = field(default_factory=list)


def _evalsets(folder: str, files: _Files) -> Iterator[str]:
    """The eval sets below a folder, and the data of version control; `files` gets all other files."""
    n_seen = 0
    packages: list[str] = []
    for place, folders, names in os.walk(folder):
        if ".git" in names:
            yield from _git_data(Path(place, ".git"))
        for name in REPOSITORIES.intersection(folders):
            yield from _git_data(Path(place, name))
        if _is_bare_repository(folders, names):
            yield place
            folders.clear()
            continue
        packages += (os.path.join(place, name) for name in PACKAGES.intersection(folders))
        left_out = REPOSITORIES | PACKAGES
        folders[:] = [each for each in folders if each not in left_out and not _is_environment(place, each)]
        folders.sort(key=lambda name: name.startswith("."))  # large caches are the last to be looked at
        n_seen += len(folders) + len(names)
        for name in names:
            path = os.path.join(place, name)
            if any(ending in name for ending in SET_ENDINGS):  # also one that an editor or a person put aside
                yield path
            else:
                files.others.append(path)
        if n_seen > MAX_SEEN:
            return
    for package in packages:
        for place, folders, names in os.walk(package):
            files.of_packages += (os.path.join(place, name) for name in names)
            n_seen += len(folders) + len(names)
            if n_seen > MAX_SEEN:
                return


def _is_bare_repository(folders: Sequence[str], names: Sequence[str]) -> bool:
    return "HEAD" in names and "objects" in folders and "refs" in folders


def _is_environment(place: str, name: str) -> bool:
    return os.path.isfile(os.path.join(place, name, "pyvenv.cfg"))
