"""Writes for which the tests wait no disk: none of them cuts the power, and a killed process loses nothing it wrote.

A commit takes milliseconds of waiting otherwise, and the tests make hundreds of thousands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evaldesk.store import sqlite

DURABLE = sqlite.SYNCHRONOUS
"""What the product asks of SQLite."""


@contextmanager
def unsynced() -> Iterator[None]:
    """Let this process leave its files and databases to the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _leave_to_the_kernel)
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        yield


def _leave_to_the_kernel(handle: int) -> None:
    os.fstat(handle)  # one that is closed is an error still
