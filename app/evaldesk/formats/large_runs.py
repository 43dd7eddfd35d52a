"""The cases and trials of a large file of runs: on the disk from the row that says them until they are stored.

A kill leaves nothing of these rows.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from weakref import finalize

from evaldesk.errors import DiskError, FormatError
from evaldesk.model import Case, TrialResult
from evaldesk.transcripts.recorded import UNNUMBERED, LargeResults, ReadItems, TrialRows, replacing
from evaldesk.wire import from_json, to_json


@contextmanager
def scratch(tables: str) -> Iterator[sqlite3.Connection]:
    """A database of SQLite without a name in the folder of temporary files. Raises DiskError when that is full."""
    with in_words(), closing(open_scratch(tables)) as database:
        yield database


def open_scratch(tables: str) -> sqlite3.Connection:
    """As `scratch`; closed by the caller, or with its last reference."""
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


_TABLES = """
CREATE TABLE "case" (place INTEGER PRIMARY KEY, at INT, key UNIQUE, n INT DEFAULT 0, weight INT, data BLOB);
CREATE TABLE trial (line INTEGER PRIMARY KEY, place INT, number INT, rank INT, verdict TEXT, data BLOB);
CREATE UNIQUE INDEX trial_number ON trial (place, number);
"""
_ADD = """
INSERT INTO trial (place, number, rank, verdict, data) VALUES (:place, :number, :rank, :verdict, :data)
ON CONFLICT (place, number) DO UPDATE
SET verdict = excluded.verdict, data = excluded.data, line = (SELECT max(line) + 1 FROM trial)
WHERE excluded.data IS NOT NULL
"""
_RANK = """
UPDATE trial SET rank = own.rank
FROM (SELECT line, row_number() OVER (PARTITION BY place ORDER BY number) - 1 AS rank FROM trial) AS own
WHERE own.line = trial.line AND own.rank <> trial.rank
"""
_ORDER = """
UPDATE "case" SET at = own.at
FROM (SELECT place, row_number() OVER (ORDER BY key) - 1 AS at FROM "case") AS own WHERE own.place = "case".place
"""
_RESULTS = """
SELECT trial.data, at, rank FROM trial CROSS JOIN "case" USING (place) ORDER BY line LIMIT -1 OFFSET ?
"""
AT_ONCE = 50
"""Rows that are in memory together."""


class TrialRowsOnDisk(TrialRows):
    """As TrialRows, in the memory of one case and one trial. Raises DiskError when the disk is full."""

    def __init__(self) -> None:
        self.n_replaced = 0
        with in_words():
            self._database = open_scratch(_TABLES)
        finalize(self, self._database.close)
        self._n_cases = 0

    def place(self, key: str | int) -> int:
        """The place of the case with that key."""
        with in_words():
            row = self._database.execute('SELECT place FROM "case" WHERE key = ?', (key,)).fetchone()
            if row is not None:
                return int(row[0])
            self._database.execute('INSERT INTO "case" (place, key) VALUES (?, ?)', (self._n_cases, key))
        self._n_cases += 1
        return self._n_cases - 1

    def offer(self, place: int, case: Case, weight: int = 0) -> None:
        """A case for that place."""
        with in_words():
            (old_weight,) = self._database.execute('SELECT weight FROM "case" WHERE place = ?', (place,)).fetchone()
            if old_weight is None or weight > old_weight:
                values = (weight, to_json(case), place)
                self._database.execute('UPDATE "case" SET weight = ?, data = ? WHERE place = ?', values)

    def case(self, place: int) -> Case:
        """The case that was offered for that place."""
        with in_words():
            (data,) = self._database.execute('SELECT data FROM "case" WHERE place = ?', (place,)).fetchone()
        return from_json(data, Case)

    def add(self, place: int, result: TrialResult | None, number: int | None = None) -> None:
        """The trial of a row."""
        if number is not None and abs(number) >= UNNUMBERED:
            raise FormatError(f"a trial has a number of {number.bit_length()} bits")
        with in_words():
            rank_sql = 'UPDATE "case" SET n = n + 1 WHERE place = ? RETURNING n - 1'
            ((rank,),) = self._database.execute(rank_sql, (place,)).fetchall()
            number = UNNUMBERED + rank if number is None else number
            row = {"place": place, "number": number, "rank": rank, "data": None, "verdict": None}
            if result:
                select_sql = "SELECT data FROM trial WHERE place = ? AND number = ?"
                (before,) = self._database.execute(select_sql, (place, number)).fetchone() or (None,)
                if before is not None:
                    result = replacing(from_json(before, TrialResult), result)
                    self.n_replaced += 1
                row |= {"data": to_json(result), "verdict": result.verdict}
            self._database.execute(_ADD, row)

    @property
    def n_numbers(self) -> int:
        """The number of trial indexes."""
        with in_words():
            return int(self._database.execute("SELECT count(DISTINCT number) FROM trial").fetchone()[0])

    def sorted_keys(self) -> Iterator[tuple[int, Any]]:
        """The places of the cases and their keys, in the order of the keys."""
        return self._fetch_rows('SELECT place, key FROM "case" ORDER BY key')

    def finish(self, *, by_key: bool = False) -> tuple[ReadItems[Case], LargeResults]:
        """The cases, and the trials in the order of their rows; each is read when it is asked for."""
        with in_words():
            self._database.execute(_ORDER if by_key else 'UPDATE "case" SET at = place')
            self._database.execute('CREATE INDEX case_at ON "case" (at)')
            self._database.execute(_RANK)
            self._database.execute("DELETE FROM trial WHERE data IS NULL")
            rows = self._database.execute("SELECT verdict, count(*) FROM trial GROUP BY verdict")
            verdicts = Counter(dict(rows))
        return ReadItems(self._n_cases, self._read_cases), LargeResults(verdicts.total(), self._read_results, verdicts)

    def _read_cases(self, first: int) -> Iterator[Case]:
        for (data,) in self._fetch_rows('SELECT data FROM "case" WHERE at >= ? ORDER BY at', first):
            yield from_json(data, Case)

    def _read_results(self, first: int) -> Iterator[TrialResult]:
        for data, at, rank in self._fetch_rows(_RESULTS, first):
            yield replace(from_json(data, TrialResult), case_index=at, trial_index=rank)

    def _fetch_rows(self, statement: str, *values: int) -> Iterator[Any]:
        with in_words():
            cursor = self._database.execute(statement, values)
        rows = [None]
        while rows:
            with in_words():
                rows = cursor.fetchmany(AT_ONCE)
            yield from rows
