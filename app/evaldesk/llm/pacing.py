"""Rate limits: requests and tokens of a model in a minute, over all processes of this user.

Each call books the next free time and waits for it. Bookings are in a file for each model at each address, in a
temporary folder of the user, so all runs, desks and players share one limit. Without such a file, as in a container, a
process has its own limit. (decision 163)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MINUTE_S = 60.0
TOKEN_BURST_S = 10.0
"""Burst size: the tokens of this many seconds may be used at once."""
FARTHEST_S = 3600.0
_LEARNING_RATE = 0.2
# Three native doubles: next free moment of requests and of tokens, mean tokens of a request (decision 163).
_STATE = struct.Struct("ddd")

PACED = "paced"
FOLDER = "EVALDESK_PACES"
"""The variable with the folder of the bookings, for a process with another temporary folder."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate limits of the models at an address, per minute; None is no limit."""

    rpm: int | None
    tpm: int | None
    base_url: str = ""

    def wait_s(self, model: str, now: Callable[[], float] = time.time) -> float:
        """Book a request; the seconds to wait before sending it."""
        with _locked_book(self._key(model)) as book:
            current_s = now()
            requests, tokens = (
                min(max(each, current_s), current_s + FARTHEST_S) for each in (book.requests, book.tokens)
            )
            at = max(current_s, requests if self.rpm else 0.0, tokens - TOKEN_BURST_S if self.tpm else 0.0)
            if self.rpm:
                book.requests = at + MINUTE_S / self.rpm
            if self.tpm:
                book.tokens = max(tokens, at) + book.mean * MINUTE_S / self.tpm
            return at - current_s

    def book_tokens(self, model: str, n_tokens: int, now: Callable[[], float] = time.time) -> None:
        """Replace the estimated tokens of a request by the tokens of its answer."""
        if not self.tpm:
            return
        with _locked_book(self._key(model)) as book:
            book.tokens = max(book.tokens, now()) + (n_tokens - book.mean) * MINUTE_S / self.tpm
            book.mean += _LEARNING_RATE * (n_tokens - book.mean) if book.mean else n_tokens

    def _key(self, model: str) -> str:
        """The key of a model, equal with and without its provider."""
        return f"{self.base_url.rstrip('/')} {model.rpartition('/')[2]}"


@dataclass(slots=True)
class _Book:
    """The next free times of requests and tokens, and the mean tokens of a request."""

    requests: float = 0.0
    tokens: float = 0.0
    mean: float = 0.0


_process_books: dict[str, _Book] = {}
# `flock` keeps out other processes, not other threads of this one: decision 163.
_lock = threading.Lock()


@contextmanager
def _locked_book(key: str) -> Iterator[_Book]:
    """The bookings of a key, locked against other threads and processes."""
    with _lock:
        file = _open_book(key)
        if file is None:
            yield _process_books.setdefault(key, _Book())
            return
        try:
            # The lock of the file is for other processes, that of the module for our threads (decision 163).
            fcntl.flock(file, fcntl.LOCK_EX)
            data = os.pread(file, _STATE.size, 0)
            book = _Book(*_STATE.unpack(data)) if len(data) == _STATE.size else _Book()
            yield book
            os.pwrite(file, _STATE.pack(book.requests, book.tokens, book.mean), 0)
        finally:
            os.close(file)


def folder_of_books() -> Path:
    """The parent folder of all users' bookings."""
    return Path(os.environ.get(FOLDER) or tempfile.gettempdir())


def _open_book(key: str) -> int | None:
    """Open the file of a key; None without a private folder of this user."""
    folder = folder_of_books() / f"evaldesk-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
            return None
        name = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
        # No symbolic link: another user could point it to a file of this one.
        return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
