"""A disk that fails, or a process that is killed, at a chosen call of the file layer."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from evaldesk import durable_files

WRITING = frozenset({"write", "fsync", "link", "mkdir", "ftruncate"})
"""What a full disk refuses, beside a new file."""


class Killed(BaseException):
    """The process ends here: no call after it reaches the disk, but the kernel closes what is open."""


def raise_killed() -> None:
    raise Killed


class FaultyDisk:
    """Counts the calls of the file layer and fails at call `at`, from 1; without a number of an error it kills.

    A write that fails has written its first half. With `lasts` every later call that needs space fails as well.
    """

    def __init__(
        self, at: int, number: int | None = None, *, lasts: bool = False, kill: Callable[[], None] = raise_killed
    ) -> None:
        self.n_calls = 0
        self._at = at
        self._number = number
        self._lasts = lasts
        self._kill = kill

    @property
    def was_reached(self) -> bool:
        """Whether the call that fails was made."""
        return self.n_calls >= self._at

    def insert(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the disk under the file layer for the rest of the test."""
        monkeypatch.setattr(durable_files, "os", _Calls(self, os))
        monkeypatch.setattr(durable_files, "fcntl", _Calls(self, fcntl))

    @contextmanager
    def inserted(self) -> Iterator[None]:
        """Put the disk under the file layer for a while."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.insert(monkeypatch)
            yield

    def call(self, name: str, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a call of the system, or fail."""
        self.n_calls += 1
        is_dead = self._number is None and self.n_calls > self._at
        needs_space = name in WRITING or (name == "open" and bool(arguments[1] & os.O_CREAT))
        is_faulty = self.n_calls >= self._at and needs_space if self._lasts else self.n_calls == self._at
        if is_dead:
            raise Killed
        if not is_faulty:
            return real(*arguments, **options)
        if name == "write":
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if self._number is None:
            self._kill()
        raise OSError(self._number, os.strerror(self._number or 0))


class _Calls:
    """A module whose functions go through the disk."""

    def __init__(self, disk: FaultyDisk, module: ModuleType) -> None:
        self._disk = disk
        self._module = module

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._module, name)
        if not callable(real) or name == "close":
            return real
        return lambda *arguments, **options: self._disk.call(name, real, *arguments, **options)
