"""What a grader imports after the freeze: nothing that was changed, made or moved to its place since.

A file is opened once, and its change time, which no program sets, is that of the opened file. Bytecode that is younger
is not read, and its source is compiled. (decision 470)
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import BYTECODE_SUFFIXES, ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from io import open_code
from typing import Any

from evaldesk.errors import MetricError


class ChangedSourceError(MetricError):
    """A file that grading code imports is not as it was before the first trial, and was not copied then."""


@dataclass(frozen=True)
class _Guard:
    """Files must not be younger than `taken_at_ns`, nor in another folder than that of `inodes` by path.

    Below `roots` there may be no other ones, but for those behind `links`.
    """

    taken_at_ns: int = 0
    inodes: Mapping[str, int] = field(default_factory=dict)
    roots: Sequence[str] = ()
    links: Sequence[str] = ()

    def read(self, path: str) -> bytes:
        """The bytes of a module or of a data file of a package.

        Raises OSError for younger bytecode, and ChangedSourceError for any other younger file.
        """
        with open_code(path) as file:
            is_changed = self.is_changed(path, os.fstat(file.fileno()))
            if is_changed and path.endswith(tuple(BYTECODE_SUFFIXES)):
                raise OSError(f"{path}: bytecode younger than the run is not read")
            content = file.read()
        if is_changed and not self._is_installed(path, content):
            raise _changed_error(path)
        return content

    def check(self, path: str) -> None:
        """Raise ChangedSourceError for a compiled extension that is younger."""
        with open_code(path) as file:
            if self.is_changed(path, os.fstat(file.fileno())) and not self._is_installed(path, file.read()):
                raise _changed_error(path)

    def is_changed(self, path: str, state: os.stat_result) -> bool:
        """Whether the file is younger, or stands in a folder or behind a link that may be."""
        return state.st_ctime_ns > self.taken_at_ns or any(self._may_be_moved(each) for each in _ways_to(path))

    def _may_be_moved(self, path: str) -> bool:
        known_inode = self.inodes.get(path)
        state = os.lstat(path)
        if known_inode is not None:
            return (
                not stat.S_ISDIR(state.st_mode) or state.st_ino != known_inode
            )  # a link may get the number of a removed folder
        if stat.S_ISDIR(state.st_mode) and _is_below(path, self.roots) and not _is_below(path, self.links):
            return True  # its own time says nothing: whoever writes a file into a folder changes it, too
        if state.st_ctime_ns <= self.taken_at_ns:
            return False
        # A player adds bytecode to a folder of its own, and a build adds files: only links and installed folders count.
        return stat.S_ISLNK(state.st_mode) or any(path.startswith(place + os.sep) for place in self.places)

    @cached_property
    def places(self) -> frozenset[str]:
        """The folders with packages: the standard library and what is installed."""
        return frozenset(path for path in self.inodes if os.path.dirname(path) not in self.inodes)

    def _is_installed(self, path: str, content: bytes) -> bool:
        """Whether the content is that of the list of its installer.

        A hard link from another environment, as uv makes them, makes a file younger that is as it was.
        """
        for place in self.places:
            if path.startswith(place + os.sep):
                return _digest(content) in self._digests_of(place).get(os.path.relpath(path, place), ())
        return False

    def _digests_of(self, place: str) -> Mapping[str, set[str]]:
        """The digests of the installed files by path, from lists that are as they were."""
        digests: dict[str, set[str]] = {}
        for folder, inode in self.inodes.items():
            record = os.path.join(folder, "RECORD")
            if os.path.dirname(folder) != place or not folder.endswith(".dist-info"):
                continue
            with suppress(OSError, UnicodeDecodeError, csv.Error), open(record, encoding="utf-8", newline="") as file:
                is_same = os.lstat(folder).st_ino == inode and not os.path.islink(record)
                if is_same and os.fstat(file.fileno()).st_ctime_ns <= self.taken_at_ns:
                    for row in csv.reader(file):
                        digests.setdefault(os.path.normpath(row[0]), set()).add(row[1] if len(row) > 1 else "")
        return digests


_guard: _Guard | None = None
_read_file: Any = SourceFileLoader.get_data
_make_module: Any = ExtensionFileLoader.create_module


def guard_imports(
    taken_at_ns: int, inodes: Mapping[str, int], roots: Sequence[str] = (), links: Sequence[str] = ()
) -> None:
    """Refuse in this process, from now on, to import what was changed after this moment; `inodes` are of folders.

    Below `roots` these are all folders, but for those behind `links`.
    """
    global _guard  # noqa: PLW0603 - of the process, as the loaders are
    _guard = _Guard(taken_at_ns, dict(inodes), roots, links)
    for loader in (SourceFileLoader, SourcelessFileLoader):
        loader.get_data = _get_data  # type: ignore[assignment, method-assign]
    ExtensionFileLoader.create_module = _create_module  # type: ignore[assignment, method-assign]


def _get_data(loader: object, path: str) -> bytes:
    return _guard.read(str(path)) if _guard else _read_file(loader, path)


def _create_module(loader: ExtensionFileLoader, spec: Any) -> Any:
    if _guard:
        _guard.check(str(spec.origin))
    return _make_module(loader, spec)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path.startswith(folder + os.sep) for folder in folders)


def _ways_to(path: str) -> Iterator[str]:
    """The folders above a file, and the file itself, which may be a link."""
    yield path
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _changed_error(path: str) -> ChangedSourceError:
    return ChangedSourceError(
        f"{path} was changed, made or moved while the run was played, so it does not grade a trial; start the run "
        "again once it is as it should be"
    )
