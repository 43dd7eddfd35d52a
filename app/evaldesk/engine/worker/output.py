"""Output of user code: attributed to the attempt that printed it, bounded, away from the frames.

`capture_output` replaces `sys.stdout` and `sys.stderr` of a worker. Output that bypasses them (`os.write`, C code,
child processes, threads that do not know their attempt) reaches file descriptor 2, which the parent reads.
"""

from __future__ import annotations

import io
import os
import sys
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from evaldesk.wire import from_json, json_scrubber, plain_text, to_json

LOG_LIMIT = 64 * 1024
STDERR = 2


class Log:
    """Text of at most `limit` characters: the first half and the last half of the output."""

    def __init__(self, limit: int = LOG_LIMIT) -> None:
        self._half = limit // 2
        self._head = ""
        self._tail: deque[str] = deque()
        self._n_tail = 0
        self._n_cut = 0

    def write(self, text: str) -> None:
        """Add `text`; the oldest part behind the first half is given up for it."""
        room = self._half - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        if not text:
            return
        self._n_cut += max(0, len(text) - self._half)
        text = text[-self._half :]
        self._tail.append(text)
        self._n_tail += len(text)
        while self._n_tail > self._half and len(self._tail) > 1:
            oldest = self._tail.popleft()
            self._n_tail -= len(oldest)
            self._n_cut += len(oldest)

    def text(self) -> str:
        """All that was kept, saying how much was not."""
        cut = f"\n… {self._n_cut} characters left out …\n" if self._n_cut else ""
        return plain_text(self._head + cut + "".join(tuple(self._tail)))


class Tail:
    """The last `limit` bytes or a little more of the output; cheap also for a flood of them."""

    def __init__(self, limit: int = LOG_LIMIT) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._n_bytes = 0

    def write(self, data: bytes) -> None:
        """Add `data` and drop the oldest."""
        self._pieces.append(data)
        self._n_bytes += len(data)
        while self._n_bytes - len(self._pieces[0]) >= self._limit:
            self._n_bytes -= len(self._pieces.popleft())

    def text(self) -> str:
        """The last `limit` bytes as text."""
        return b"".join(self._pieces)[-self._limit :].decode("utf-8", "replace")


CURRENT_LOG: ContextVar[Log | None] = ContextVar("current_log", default=None)


class AttemptWriter(io.TextIOBase):
    """A text stream that writes to the log of the attempt that is current where it is called."""

    encoding = "utf-8"
    errors = "replace"

    @property
    def buffer(self) -> _AttemptBytes:
        """The same stream for bytes, as `sys.stdout.buffer`."""
        return _AttemptBytes()

    def write(self, text: str) -> int:
        """Write to the current log, or to file descriptor 2 where no attempt is current."""
        log = CURRENT_LOG.get()
        if log is None:
            _write_raw(text.encode("utf-8", "replace"))
        else:
            log.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Write one text after the other."""
        for line in lines:
            self.write(line)

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """File descriptor 2, so that child processes can be given this stream."""
        return STDERR

    def close(self) -> None:
        """Nothing: the stream outlives the code that prints."""


class _AttemptBytes(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        log = CURRENT_LOG.get()
        if log is None:
            _write_raw(raw)
        else:
            log.write(raw.decode("utf-8", "replace"))
        return len(raw)


def capture_output() -> None:
    """Make every print of this process go to the log of its attempt."""
    sys.stdout = AttemptWriter()
    sys.stderr = AttemptWriter()


def _write_raw(data: bytes) -> None:
    try:
        os.write(STDERR, data)
    except OSError:
        return  # there is no reader any more, and no other place for the message


T = TypeVar("T")


def without_env_secrets(value: T) -> T:
    """`value` with the secret values that came from `.env` files replaced by the names of their variables."""
    from evaldesk.agents.loading import file_environment

    environment = file_environment()
    if not environment:
        return value
    data = to_json(value)
    clean = json_scrubber(environment)(data)
    return value if clean is data else from_json(clean, type(value))
