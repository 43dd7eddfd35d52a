"""Readers that leave, as `head` does: no trace, and a verdict that stays what it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

EXIT_READER_LEFT = 141
"""What a shell says of a command that was ended by SIGPIPE."""


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print as long as somebody reads; what comes later is dropped."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Let nothing more reach a reader who has left, also what Python would flush at its end."""
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
