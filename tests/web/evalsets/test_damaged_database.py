"""Pages of a desk whose database is damaged: a sentence, no trace."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.web.evalsets.conftest import Pages

PAGE = 4096


def test_a_page_tells_a_damaged_database_as_a_sentence(pages: Pages) -> None:
    path = Path(pages.desk.store._database.name)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        rows = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'run'").fetchall()
    pages.desk.store._database._reader.dispose()  # its connections may have the page in memory
    with path.open("r+b") as file:
        for (number,) in rows:  # of the table and of its indexes, each of which may answer alone
            file.seek((number - 1) * PAGE)
            file.write(b"\xff" * PAGE)

    answer = pages.get("/runs")

    assert answer.status_code == 500
    assert "The database is damaged" in answer.text
    assert "put a backup in its place" in answer.text
    assert "defect" not in answer.text
