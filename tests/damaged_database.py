"""Damage of a database from which each row can still be read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

PAGE = 4096


def root_page(path: Path, name: str) -> int:
    """The number of the first page of a table or an index."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0])


def overwrite_page(path: Path, page: int, data: bytes = b"\xff" * PAGE) -> None:
    """Put other bytes in the place of a page."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(data)


def overwrite_index(path: Path) -> None:
    """Damage an index: SQLite reports the database as damaged, and its rows are all there."""
    overwrite_page(path, root_page(path, "ix_run_agent_id_id"))
