"""Rows that wait on the disk while a large file is read or written; a kill leaves nothing of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from evaldesk.errors import DiskError


@contextmanager
def scratch(tables: str) -> Iterator[sqlite3.Connection]:
    """A database of SQLite without a name in the folder of temporary files. Raises DiskError when that is full."""
    with in_words(), closing(open_scratch(tables)) as database:
        yield database


def open_scratch(tables: str) -> sqlite3.Connection:
    """As `scratch`, to be closed by the caller, or with the last one that knows it."""
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    database.executescript(f"PRAGMA journal_mode=OFF; PRAGMA cache_size=-8192; {tables}")
    database.execute("BEGIN")
    return database


@contextmanager
def in_words() -> Iterator[None]:
    """Errors of the disk as DiskError."""
    try:
        yield
    except sqlite3.Error as error:
        words = f"the folder of temporary files cannot be written ({error}); free some space, or set TMPDIR to another"
        raise DiskError(0, str(error), words) from error
