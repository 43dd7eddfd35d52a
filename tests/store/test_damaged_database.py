"""A database with damaged bytes, or of another program: told in a sentence, and never written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from evaldesk.cli import EXIT_ERRORS, _in_words
from evaldesk.desk.runs.driver import RunWriter
from evaldesk.errors import DamagedDatabaseError, WorkspaceError
from evaldesk.model import TurnRecord
from evaldesk.store import Store
from evaldesk.store.database import Database
from evaldesk.store.sqlite import WORD_FILE, SqliteFile, WordFile
from evaldesk.store.tables.columns import PLAIN, ZSTD
from evaldesk.store.tables.sessions import SESSION

PAGE = 4096


def _filled(path: Path) -> None:
    with Store.open(path) as store:
        for number in range(50):
            store.sessions.create("hello", f"Session {number}", {"text": "x" * 500})


def _overwrite_header(path: Path) -> None:
    path.write_bytes(b"\xff" * 100 + path.read_bytes()[100:])


def _overwrite_sessions(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'session'").fetchone()
    with path.open("r+b") as file:
        file.seek((number - 1) * PAGE)
        file.write(b"\xff" * PAGE)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:PAGE])


@pytest.mark.parametrize("damage", [_overwrite_header, _overwrite_sessions, _truncate])
def test_damage_is_told_with_the_next_step_and_nothing_is_written(
    database: Path, damage: Callable[[Path], None]
) -> None:
    _filled(database)
    damage(database)
    before = database.read_bytes()

    expected = pytest.raises(DamagedDatabaseError, match=r"is damaged \(.*put a backup in its place")
    with expected as caught, Store.open(database) as store:
        store.sessions.list()

    assert _in_words(caught.value) == (str(caught.value), EXIT_ERRORS)
    assert database.read_bytes() == before


@pytest.mark.parametrize("codec", [PLAIN, ZSTD])
def test_a_packed_value_that_is_damaged_is_told_where_it_is_read_and_by_a_check(database: Path, codec: int) -> None:
    with Store.open(database) as store:
        session = store.sessions.create("hello")
        store.sessions.append_turn(session.id, TurnRecord("Roll."))
        store.check()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE session_turn SET codec = ?, data = ?", (codec, b"\x28\xb5\x2f\xfd\x00junk"))

    with Store.open(database) as store:
        for read in (lambda: store.sessions.get(session.id), store.check):
            with pytest.raises(DamagedDatabaseError, match=r"the database is damaged \(a packed value"):
                read()


def test_a_value_that_cannot_be_read_leaves_no_transaction_open(database: Path) -> None:
    with Store.open(database) as store:
        store.sessions.create("hello")
        with closing(sqlite3.connect(database, timeout=0)) as other:
            other.execute("UPDATE session SET created_at = '0000-00-00'")
            other.commit()
            for begin in (store._database.reading, store._database.writing):
                with pytest.raises((DamagedDatabaseError, ValueError)), begin() as connection:
                    connection.execute(select(SESSION.c.created_at)).all()

                other.execute("BEGIN IMMEDIATE")
                other.rollback()
                assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0  # no reader is in the way


def test_a_write_tells_damage_too(database: Path) -> None:
    _filled(database)
    _overwrite_sessions(database)

    with Store.open(database) as store, pytest.raises(DamagedDatabaseError):
        store.sessions.create("hello")


def test_a_run_does_not_retry_a_write_into_damage(database: Path) -> None:
    _filled(database)
    _overwrite_sessions(database)

    with Store.open(database) as store, pytest.raises(DamagedDatabaseError):
        asyncio.run(_write_a_session(store))


async def _write_a_session(store: Store) -> None:
    writer = RunWriter()
    writer.give_up_after_s = 0  # a retry would be given up at once, as another error
    try:
        await writer.write_with_retry(store.sessions.create, "hello")
    finally:
        await writer.close()


@pytest.mark.parametrize("rows", [[("0003",)], []], ids=["with a revision that is also ours", "without a revision"])
def test_another_program_that_uses_alembic_is_never_migrated(tmp_path: Path, rows: list[tuple[str]]) -> None:
    path = tmp_path / "evaldesk.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("CREATE TABLE recipe (id INTEGER)")
        connection.executemany("INSERT INTO alembic_version VALUES (?)", rows)
        connection.commit()
    before = path.read_bytes()

    with pytest.raises(WorkspaceError, match="another program"):
        Store.open(path)

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["evaldesk.db"]


ENDLESS = "CREATE VIEW {} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n"


@pytest.mark.parametrize("table", ["run", "run_case", "RUN_METRIC"])
def test_a_view_in_the_place_of_a_table_is_refused(database: Path, table: str) -> None:
    _filled(database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO kept_aside")
        connection.execute(ENDLESS.format(table))

    with pytest.raises(WorkspaceError, match="another program"):
        Store.open(database)


def test_a_view_that_somebody_made_beside_the_tables_is_left_alone(database: Path) -> None:
    _filled(database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE VIEW passed AS SELECT * FROM trial WHERE verdict = 'passed'")

    with Store.open(database) as store:
        assert len(store.sessions.list()) == 50


def test_an_index_of_words_with_a_view_is_made_again(database: Path) -> None:
    _filled(database)
    with closing(sqlite3.connect(database.with_name(WORD_FILE))) as connection, connection:
        connection.execute(ENDLESS.format("seen"))
    words = WordFile(database)

    with pytest.raises(WorkspaceError, match="made again"):
        words.indexed_runs()

    assert words.indexed_runs() == {}


def test_no_connection_trusts_functions_in_the_schema(store: Store, database: Path) -> None:
    opened = Database(SqliteFile(database))

    with opened.reading() as reader, opened.writing() as writer:
        found = [each.exec_driver_sql("PRAGMA trusted_schema").scalar_one() for each in (reader, writer)]
    opened.close()

    assert found == [0, 0]
