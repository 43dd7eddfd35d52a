"""The files that a player in a sandbox does not see, and its own code, which it does."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from evaldesk.desk.runs.set_copies import SetCopies
from evaldesk.engine.launch import ProcessLauncher, SandboxLauncher
from evaldesk.llm.price_list import price_list
from evaldesk.model import AgentRef, RunConfig
from evaldesk.paths import EVALSET_SUFFIX, PACKAGE
from evaldesk.settings import Settings

MAX_SEEN = 20_000
"""Files and folders that are looked at for eval sets below one folder."""
SET_ENDINGS = (EVALSET_SUFFIX, ".test.json")
LEFT_OUT = frozenset({"node_modules", "site-packages", "__pycache__", ".git"})


def sandbox_launcher(settings: Settings, config: RunConfig) -> SandboxLauncher:
    """The launcher of players that see no eval set, no database and nothing of the home but their own code."""
    agent = config.agent
    own = [*_code_of(agent), *_interpreters(agent)]
    hidden_paths = [str(settings.state_folder), str(settings.evalset_folder), str(Path.home())]
    hidden_paths += [config.evalset_path] if config.evalset_path else []
    places = (str(settings.workspace), *map(str, settings.roots), agent.root, agent.folder)
    others: list[str] = []
    for folder in dict.fromkeys(filter(None, places)):
        hidden_paths += islice(_evalsets(folder, others), MAX_SEEN)
        hidden_paths += _repositories_above(folder)
    sets = [path for path in hidden_paths if path == config.evalset_path or path.endswith(SET_ENDINGS)]
    copies = SetCopies(dict.fromkeys(chain(sets, _files_in(settings.evalset_folder))))
    hidden_paths += filter(copies.has, dict.fromkeys(others))
    recordings = [config.recording.folder] if config.recording.mode != "off" else []
    return SandboxLauncher(
        ProcessLauncher(agent.python),
        hidden_paths=tuple(hidden_paths),
        visible=(*own, *recordings),
        read_only=(str(PACKAGE), sysconfig.get_path("purelib")),
    )


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


def _evalsets(folder: str, others: list[str]) -> Iterator[str]:
    """The eval sets below a folder, and the git data, in which earlier versions are; `others` gets all other files."""
    n_seen = 0
    for place, folders, files in os.walk(folder):
        if ".git" in folders or ".git" in files:
            yield from _git_data(Path(place, ".git"))
        folders[:] = [each for each in folders if each not in LEFT_OUT and not _is_environment(place, each)]
        folders.sort(key=lambda name: name.startswith("."))  # large caches are the last to be looked at
        n_seen += len(folders) + len(files)
        for name in files:
            path = os.path.join(place, name)
            if any(ending in name for ending in SET_ENDINGS):  # also one that an editor or a person put aside
                yield path
            else:
                others.append(path)
        if n_seen > MAX_SEEN:
            return


def _is_environment(place: str, name: str) -> bool:
    return os.path.isfile(os.path.join(place, name, "pyvenv.cfg"))
