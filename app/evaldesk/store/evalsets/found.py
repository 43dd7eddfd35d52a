"""Files that may be eval sets: found under the folders that are served, with the ids that stand for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from evaldesk.errors import UsageError
from evaldesk.store.evalsets.names import evalset_file_id, identity_of_real, is_file_id, stem_and_suffix

MAX_DEPTH = 8
MAX_FILES = 2_000
MAX_ENTRIES = 50_000
NAMED = (".evalset.json", ".test.json")
DATASETS = "datasets"
"""The folder below an eval folder in which agents-cli has its datasets."""
EVAL_FOLDERS = frozenset({"eval", "evals", "evalset", "evalsets", "eval_set", "eval_sets"})
SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A candidate: its path, its path under its root, and a stamp that changes with the file."""

    id: str
    path: Path
    place: str
    size: int
    modified_ns: int
    inode: int

    @property
    def is_named(self) -> bool:
        """Whether the name alone says that this means to be an eval set."""
        return self.path.name.lower().endswith(NAMED)

    def is_same(self, other: FoundFile) -> bool:
        """Whether both are one file, unchanged, wherever it lies."""
        return (self.inode, self.size, self.modified_ns) == (other.inode, other.size, other.modified_ns)

    def as_it_is(self) -> FoundFile | None:
        """The same file at this moment; None when nothing is there any more."""
        try:
            stat = self.path.lstat()
        except OSError:
            return None
        return replace(self, size=stat.st_size, modified_ns=stat.st_mtime_ns, inode=stat.st_ino)


def find_files(roots: Sequence[Path], home: Path) -> dict[str, FoundFile]:
    """The candidates by id, in order of root and path. Roots that are not there are passed over.

    `home` is the workspace, without links. Of two files that one id would stand for, the later one gets another.
    """
    files: dict[str, FoundFile] = {}
    listed_paths: set[Path] = set()
    for root in roots:
        for path, stat in _candidates(root):
            if path in listed_paths or len(files) >= MAX_FILES:
                continue
            listed_paths.add(path)
            place = path.relative_to(root).as_posix()
            file_id = _free_id(path, home, files)
            files[file_id] = FoundFile(file_id, path, place, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return files


def id_of_new(path: Path, roots: Sequence[Path], home: Path) -> str:
    """The id that `find_files` will give the file that is about to be at `path`. Raises UsageError outside of all."""
    place = next((number for number, root in enumerate(roots) if path.is_relative_to(root)), None)
    if place is None:
        raise UsageError(f"{path.parent} is not served; start Evaldesk with it")
    return _free_id(path, home, find_files(roots[:place], home))


def may_be_found(path: Path, roots: Iterable[Path]) -> bool:
    """Whether `find_files` may give the file at `path`, going by its name and those of its folders."""
    if not _is_candidate(path.name, path.parent):
        return False
    inner = [path.parent.relative_to(root).parts for root in roots if path.is_relative_to(root)]
    is_searched = any(len(folders) <= MAX_DEPTH and not any(map(_is_skipped, folders)) for folders in inner)
    return is_searched and path.is_file()


def places_of(file_id: str, path: Path, home: Path) -> list[Path] | None:
    """Where a file has this id that one at `path` had in another workspace; None where that is not told."""
    if not is_file_id(file_id):
        return []
    stem, _ = stem_and_suffix(path)
    ends = [PurePath(*path.parts[n:]).as_posix() for n in range(len(path.parts))]
    matching_ends = [end for end in ends if evalset_file_id(stem, end) == file_id]
    return [home / end for end in matching_ends] or None


def folders_of(roots: Iterable[Path]) -> list[Path]:
    """The folders that are searched for eval sets."""
    return list(dict.fromkeys(folder for root in roots for folder, _ in _folders(root)))


def _free_id(path: Path, home: Path, files: dict[str, FoundFile]) -> str:
    own = identity_of_real(path, home)
    is_free = own not in files or files[own].path == path
    return own if is_free else evalset_file_id(stem_and_suffix(path)[0], path.as_posix())


def _candidates(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, entries in _folders(root):
        for entry in entries:
            stat = _stat_of(entry) if _is_candidate(entry.name, folder) else None
            if stat is not None:
                yield folder / entry.name, stat


def _folders(root: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    folders = [(root, 0)]
    n_entries = 0
    while folders and n_entries < MAX_ENTRIES:
        folder, depth = folders.pop()
        entries = _entries(folder)
        n_entries += len(entries)
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        is_deepest = depth >= MAX_DEPTH
        inner = [
            each
            for each in entries
            if not (is_deepest or _is_skipped(each.name)) and each.is_dir(follow_symlinks=False)
        ]
        folders.extend((folder / entry.name, depth + 1) for entry in reversed(inner))
        yield folder, entries


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in SKIPPED


def _is_candidate(name: str, folder: Path) -> bool:
    lowered = name.lower()
    if lowered.startswith(".") or not lowered.endswith(".json"):
        return False
    eval_folder = folder.parent if folder.name.lower() == DATASETS else folder
    return lowered.endswith(NAMED) or eval_folder.name.lower() in EVAL_FOLDERS


def _stat_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False) if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None
