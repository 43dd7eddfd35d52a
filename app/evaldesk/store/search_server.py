"""The words of trials as `tsvector` in two tables of PostgreSQL, which are made when they are first needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evaldesk.store.database import Database
from evaldesk.store.search import Seen, numbers_of

MOST_FORGOTTEN = 500
_TABLES = (
    "CREATE TABLE IF NOT EXISTS search_seen (run_id BIGINT PRIMARY KEY, mark TEXT NOT NULL, up_to TIMESTAMPTZ)",
    "CREATE TABLE IF NOT EXISTS search_place (number BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
    "CREATE INDEX IF NOT EXISTS ix_search_place_words ON search_place USING GIN (words)",
)
_PUT = (
    "INSERT INTO search_place VALUES (%s, array_to_tsvector(%s)) "
    "ON CONFLICT (number) DO UPDATE SET words = excluded.words"
)
_PUT_SEEN = (
    "INSERT INTO search_seen VALUES (%s, %s, %s) "
    "ON CONFLICT (run_id) DO UPDATE SET mark = excluded.mark, up_to = excluded.up_to"
)
_FORGET = (
    "DELETE FROM search_place WHERE number IN "
    "(SELECT number FROM search_place WHERE number >= %s AND number < %s LIMIT %s)"
)


class WordTables:
    """The index in the same database as the runs."""

    refusal = ""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.reading() as connection:
            is_made = connection.exec_driver_sql("SELECT to_regclass('ix_search_place_words')").scalar() is not None
        if not is_made:
            with database.writing() as connection:
                for statement in _TABLES:
                    connection.exec_driver_sql(statement)

    def seen(self) -> Mapping[int, Seen]:
        """The runs that are in the index."""
        rows = self._rows("SELECT run_id, mark, up_to FROM search_seen")
        return {run_id: Seen(mark, up_to) for run_id, mark, up_to in rows}

    def put(self, run_id: int, seen: Seen, words: Sequence[tuple[int, Collection[str]]]) -> None:
        """Give some places these words instead of those that they had."""
        with self._database.writing() as connection:
            for number, each in words:
                connection.exec_driver_sql(_PUT, (number, list(each)))
            connection.exec_driver_sql(_PUT_SEEN, (run_id, seen.mark, seen.up_to))

    def count(self, run_id: int) -> int:
        """How many places of a run are indexed."""
        question = "SELECT count(*) FROM search_place WHERE number >= %s AND number < %s"
        return int(self._rows(question, numbers_of(run_id))[0][0])

    def forget(self, run_id: int) -> bool:
        """Take some places of a run out, and at last the run; True while some are left."""
        with self._database.writing() as connection:
            is_left = connection.exec_driver_sql(_FORGET, (*numbers_of(run_id), MOST_FORGOTTEN)).rowcount > 0
            if not is_left:
                connection.exec_driver_sql("DELETE FROM search_seen WHERE run_id = %s", (run_id,))
        return is_left

    def numbers(self, words: Sequence[str], but: Collection[int], limit: int) -> Sequence[int]:
        """The newest places that hold all words."""
        *whole, begun = words
        asked = " & ".join([*(f"'{word}'" for word in whole), f"'{begun}'" + (":*" if len(begun) > 1 else "")])
        outside = "".join(f" AND NOT number BETWEEN {first} AND {end - 1}" for first, end in map(numbers_of, but))
        newest = f"SELECT number FROM search_place WHERE words @@ %s::tsquery{outside} ORDER BY number DESC LIMIT %s"  # noqa: S608
        return [number for (number,) in self._rows(newest, (asked, limit))]

    def size(self) -> int:
        """The bytes of the table with the words and of its indexes."""
        return int(self._rows("SELECT pg_total_relation_size('search_place')")[0][0])

    def _rows(self, question: str, values: tuple[Any, ...] = ()) -> Sequence[Any]:
        with self._database.reading() as connection:
            return connection.exec_driver_sql(question, values).all()
