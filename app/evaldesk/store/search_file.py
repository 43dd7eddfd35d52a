"""The words of trials in a file of SQLite beside the database, by its full text search (FTS5).

A file of its own: neither its size nor its writes touch the database, and a damaged one is made again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from evaldesk.errors import WorkspaceError
from evaldesk.paths import is_read_only, make_private_file
from evaldesk.store.search import Seen, numbers_of

NAME = "search.db"
BUSY_S = 10.0
MOST_BEGUN = 40
"""Words that the last one may begin; FTS5 itself takes 10 times as long to look for all of them."""
MOST_FORGOTTEN = 500
_TABLES = (
    "CREATE TABLE IF NOT EXISTS seen (run_id INTEGER PRIMARY KEY, mark TEXT NOT NULL, up_to TEXT)",
    # Words are split already: without ASCII punctuation in them, the tokenizer `ascii` keeps each of them whole.
    "CREATE VIRTUAL TABLE IF NOT EXISTS place USING fts5(words, detail=none, columnsize=0, tokenize='ascii')",
)
_LAST = chr(0x10FFFF)


class WordFile:
    """The index of the database at `database`."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(NAME)
        self._is_read_only = is_read_only(database)
        self.refusal = self._refusal()

    def seen(self) -> Mapping[int, Seen]:
        """The runs that are in the index."""
        with self._open() as connection:
            rows = connection.execute("SELECT run_id, mark, up_to FROM seen").fetchall()
        return {run_id: Seen(mark, datetime.fromisoformat(up_to) if up_to else None) for run_id, mark, up_to in rows}

    def put(self, run_id: int, seen: Seen, words: Sequence[tuple[int, Collection[str]]]) -> None:
        """Give some places these words instead of those that they had."""
        rows = [(number, " ".join(each)) for number, each in words]
        up_to = seen.up_to.isoformat() if seen.up_to else None
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO place (rowid, words) VALUES (?, ?)", rows)
            connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", (run_id, seen.mark, up_to))
            connection.execute("COMMIT")

    def count(self, run_id: int) -> int:
        """How many places of a run are indexed."""
        question = "SELECT count(*) FROM place_content WHERE id >= ? AND id < ?"
        with self._open() as connection:
            return int(connection.execute(question, numbers_of(run_id)).fetchone()[0])

    def forget(self, run_id: int) -> bool:
        """Take some places of a run out, and at last the run; True while some are left."""
        some = "SELECT id FROM place_content WHERE id >= ? AND id < ? LIMIT ?"
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            numbers = connection.execute(some, (*numbers_of(run_id), MOST_FORGOTTEN)).fetchall()
            connection.executemany("DELETE FROM place WHERE rowid = ?", numbers)
            if not numbers:
                connection.execute("DELETE FROM seen WHERE run_id = ?", (run_id,))
            connection.execute("COMMIT")
        return bool(numbers)

    def numbers(self, words: Sequence[str], but: Collection[int], limit: int) -> Sequence[int]:
        """The newest places that hold all words."""
        *whole, begun = words
        outside = "".join(f" AND NOT rowid BETWEEN {first} AND {end - 1}" for first, end in map(numbers_of, but))
        newest = f"SELECT rowid FROM place WHERE place MATCH ?{outside} ORDER BY rowid DESC LIMIT ?"  # noqa: S608
        with self._open() as connection:
            ends = [begun]
            if len(begun) > 1:
                known = "SELECT term FROM temp.word WHERE term >= ? AND term < ? LIMIT ?"
                ends += [term for (term,) in connection.execute(known, (begun, begun + _LAST, MOST_BEGUN))]
            asked = " AND ".join([*map(_quoted, whole), f"({' OR '.join(map(_quoted, ends))})"])
            return [number for (number,) in connection.execute(newest, (asked, limit))]

    def size(self) -> int:
        """The bytes of the file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def _refusal(self) -> str:
        if not has_fts5():
            return "The SQLite of this Python has no full text search (FTS5), so the texts of trials are not searched."
        if self._is_read_only and not self.path.is_file():
            return "This workspace is read-only and has no index, so the texts of trials are not searched."
        return ""

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection to the file. Raises WorkspaceError; a file that is no index is removed, and is made again."""
        try:
            with closing(self._connected()) as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
            if is_damaged and not self._is_read_only:
                self._remove()
            raise WorkspaceError(f"{self.path}: {error}; it may be removed, and is made again") from error

    def _connected(self) -> sqlite3.Connection:
        if self._is_read_only:
            address = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(address, BUSY_S, uri=True, isolation_level=None)
        else:
            make_private_file(self.path)
            connection = sqlite3.connect(self.path, BUSY_S, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema=OFF").close()
            if not self._is_read_only:
                for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", *_TABLES):
                    connection.execute(statement).close()
            connection.execute("CREATE VIRTUAL TABLE temp.word USING fts5vocab(main, place, row)").close()
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)


def has_fts5() -> bool:
    """Whether the SQLite of this Python was built with full text search."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(_TABLES[1]).close()
        except sqlite3.OperationalError:
            return False
    return True


def _quoted(word: str) -> str:
    """A word as FTS5 reads a string; words have no quotation marks in them."""
    return f'"{word}"'
