"""Readers that leave early, as `head` does: no trace, and the verdict stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

EXIT_READER_LEFT = 141
"""The exit code that a shell gives a command ended by SIGPIPE."""


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print until the reader leaves; drop the rest."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Drop all further output after the reader closed the pipe, also at Python's final flush."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def open_closed_streams() -> None:
    """Give a process that was started without its streams (`>&-`) empty ones, so that no file takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
