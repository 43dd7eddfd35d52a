"""The files of an agent and of eval functions: whether they changed, and the short hash that a run keeps.

Beside those of an agent's own folder these are the files of its project that they import; nothing is imported to find
them.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from evaldesk.agents.discovery import is_imported, source_folders
from evaldesk.model import AgentRef, Criterion, RunConfig
from evaldesk.process_setup import parsing

MAX_FILES = 2_000

_SUFFIXES = (".py", ".yaml", ".yml", ".toml", ".txt", ".md")
# Nothing but its name tells a log from a prompt: decision 392.
_LOG = re.compile(r"(?:.*[._-])?(?:logs?|out|stdout|stderr)(?:[._-][\d._-]+)?\.txt", re.IGNORECASE)
"""The usual names of texts that an agent or a shell writes, such as `log.txt` and `calls-log.2.txt`: not its code."""
_NAMES = (".env",)
_OTHERS = {"__pycache__", "node_modules", "site-packages", "venv"}


def agent_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The first MAX_FILES files of code, configuration and prompts in an agent's folder, in the order of their paths.

    Eval sets and data beside the agent are not among them: to save a case is not to change the agent.
    """
    return islice(_files(folder), MAX_FILES)


def version_of(ref: AgentRef) -> str:
    """A digest over the agent's files and the times at which packages of its own interpreter changed."""
    packages = (f"{place} {changed_ns}" for place, changed_ns in package_folders(ref))
    return "\n".join((fingerprint(ref.folder), _digest_of(imported_files(ref)), *packages))


def package_folders(ref: AgentRef) -> list[tuple[str, int]]:
    """The folders of the packages of the agent's own interpreter, and when something was last installed there."""
    places = Path(ref.python).parents[1].glob("lib/python3*/site-packages") if ref.python else ()
    folders = []
    for place in sorted(places):
        with suppress(OSError):
            folders.append((str(place), place.stat().st_mtime_ns))
    return folders


def fingerprint(folder: str) -> str:
    """A digest over the agent's files; empty for an agent without a folder."""
    return _digest_of([entry.path for entry in agent_files(folder)]) if folder else ""


def _digest_of(paths: Sequence[str]) -> str:
    """A digest over names, times and sizes, without files that were removed since the listing."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with suppress(OSError):
            status = os.stat(path, follow_symlinks=False)
            digest.update(f"{path}\0{status.st_mtime_ns}\0{status.st_size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _OTHERS and not entry.name.startswith("."):
                yield from _files(entry.path)
        elif (entry.name.endswith(_SUFFIXES) or entry.name in _NAMES) and not _LOG.fullmatch(entry.name):
            yield entry


MAX_BYTES = 8 * 1024 * 1024


def agent_version(ref: AgentRef) -> str:
    """The first 12 hex digits of the SHA-256 of names and contents; empty when the agent has no folder of its own.

    Of each file the first MAX_BYTES count; hidden files, which may hold keys, and unreadable ones do not.
    """
    if not ref.folder or not Path(ref.folder).is_dir():
        return ""
    own = [entry for entry in agent_files(ref.folder) if not entry.name.startswith(".")]
    path_pairs = [
        (Path(entry.path).relative_to(ref.folder), entry.path) for entry in own if entry.is_file(follow_symlinks=False)
    ]
    path_pairs += [(Path(os.path.relpath(path, ref.folder)), path) for path in imported_files(ref)]
    return _version(_contents(path_pairs))


def function_roots(criteria: Sequence[Criterion]) -> list[str]:
    """The folders from which the user's functions among the criteria are imported."""
    return [os.path.abspath(root) for _, root in _functions(criteria)]


def functions_version(criteria: Sequence[Criterion], sources: Mapping[str, str] | None = None) -> str:
    """As `agent_version`, for the user's functions among the criteria and their imports from their folders.

    `sources` are copies of these files by path, each byte as one character; without them the files are read now.
    """
    roots = [Path(root) for root in function_roots(criteria)]
    if sources is None:
        contents = dict(_contents((Path(path), path) for path in function_files(criteria)))
    else:
        contents = {Path(path): source.encode("latin-1")[:MAX_BYTES] for path, source in sources.items()}
    relative_contents = {_relative(path, roots): content for path, content in contents.items()}
    return _version(sorted(relative_contents.items())) if relative_contents else ""


def function_files(criteria: Sequence[Criterion]) -> list[str]:
    """The files of the user's functions among the criteria, and of their imports from their folders."""
    paths: set[str] = set()
    for function, root in _functions(criteria):
        places = [Path(os.path.abspath(place)) for place in (root, *_added_folders())]
        own = _files_of(places[0], function.partition(":")[0].split("."), ())
        paths |= _with_imported(map(str, own), places)
    return sorted(paths)


FunctionsKey: TypeAlias = frozenset[tuple[str, str]]


def functions_key(criteria: Sequence[Criterion]) -> FunctionsKey:
    """The user's functions among the criteria, each with the folder from which it is imported."""
    return frozenset(_functions(criteria))


def _functions(criteria: Sequence[Criterion]) -> Iterator[tuple[str, str]]:
    """The functions among the criteria, each with the folder from which it is imported."""
    for criterion in criteria:
        function, root = criterion.options.get("function"), criterion.options.get("root")
        if isinstance(function, str) and isinstance(root, str) and root:
            yield function, root


def _added_folders() -> list[str]:
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


def _relative(path: Path, roots: Sequence[Path]) -> Path:
    return next((path.relative_to(root) for root in roots if path.is_relative_to(root)), path)


def _contents(path_pairs: Iterable[tuple[Path, str]]) -> Iterator[tuple[Path, bytes]]:
    for name, path in path_pairs:
        with suppress(OSError):  # not ours to read, or removed at this moment
            yield name, _content(path)


def _version(contents: Iterable[tuple[Path, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in contents:
        digest.update(f"{name.as_posix()}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:12]


def code_change(config: RunConfig) -> str:
    """Sentences for changed files of the agent and of eval functions since the start of the run."""
    versions = [("The files of eval functions", config.functions_version, functions_version(config.criteria))]
    if config.source_run_id is None:
        versions.insert(0, ("The agent's files", config.agent_version, agent_version(config.agent)))
    differences = [(whose, was, now or "unreadable") for whose, was, now in versions if was and now != was]
    return " ".join(f"{whose} changed while the run rested: {was} became {now}." for whose, was, now in differences)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_BYTES)


Imports: TypeAlias = tuple[tuple[int, str, tuple[str, ...]], ...]
"""The statements of a file: how far up, the module, the names that are taken from it."""


def imported_files(ref: AgentRef) -> list[str]:
    """The files outside of the agent's folder that it imports from its project, at most MAX_FILES, by path.

    With each, the prompts and the configuration that lie beside it.
    """
    if not ref.folder or not is_imported(ref):
        return []
    places = [Path(ref.root or ref.folder), *source_folders(Path(ref.folder))]
    own = (entry.path for entry in agent_files(ref.folder) if entry.name.endswith(".py"))
    paths = {path for path in _with_imported(own, places) if not Path(path).is_relative_to(ref.folder)}
    neighbours = (entry.path for folder in {os.path.dirname(path) for path in paths} for entry in _neighbours(folder))
    return sorted({*paths, *islice(neighbours, MAX_FILES)})


def _with_imported(own: Iterable[str], places: Sequence[Path]) -> set[str]:
    """These files and their imports from `places`, at most about MAX_FILES."""
    queue = deque(own)
    paths = set(queue)
    while queue and len(paths) < MAX_FILES:
        new_paths = {str(module) for module in _modules(queue.popleft(), places)} - paths
        paths |= new_paths
        queue.extend(sorted(new_paths))
    return paths


def _neighbours(folder: str) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as listing:
        for entry in listing:
            is_read = entry.name.endswith(_SUFFIXES[1:]) and not _LOG.fullmatch(entry.name)
            if is_read and entry.is_file(follow_symlinks=False):
                yield entry


def _modules(path: str, places: Sequence[Path]) -> Iterator[Path]:
    """The files of the project that a file imports, those of the packages around them included."""
    try:
        status = os.stat(path)
    except OSError:
        return
    for level, module, names in _imports(path, status.st_mtime_ns, status.st_size):
        steps = module.split(".") if module else []
        if level:
            around = Path(path).parents[min(level, len(Path(path).parents)) - 1]
            yield from _files_of(around, steps, names)
        elif steps and steps[0] not in sys.stdlib_module_names:
            for place in places:
                if (place / steps[0]).is_dir() or (place / f"{steps[0]}.py").is_file():
                    yield from _files_of(place, steps, names)
                    break


def _files_of(place: Path, steps: Sequence[str], names: Sequence[str]) -> Iterator[Path]:
    for step in steps:
        yield from _existing(place / f"{step}.py", place / step / "__init__.py")
        place /= step
    for name in names:
        yield from _existing(place / f"{name}.py", place / name / "__init__.py")


def _existing(*paths: Path) -> Iterator[Path]:
    return (path for path in paths if path.is_file())


@lru_cache(maxsize=4 * MAX_FILES)
def _imports(path: str, _changed_ns: int, _size: int) -> Imports:
    """The imports in a file; none of an unreadable one, whose own import will fail."""
    try:
        with parsing:
            tree = ast.parse(_content(path))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, each.name, ()) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(each.name for each in node.names)))
    return tuple(imports)
