"""The file on disk: who may read it, how it is opened, when its schema is written."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from tests.unsynced import DURABLE

from evaldesk.errors import LostDatabaseError, WorkspaceError
from evaldesk.store import Store
from evaldesk.store import database as database_module
from evaldesk.store import sqlite as sqlite_module
from evaldesk.store.database import QUEUE_S, Database
from evaldesk.store.sqlite import SharedDialect, SqliteFile


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)
def test_nobody_else_may_read_the_database_whatever_the_umask(database: Path, mask: int) -> None:
    with _umask(mask), Store.open(database) as store:
        store.sessions.create("hello")

        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in database.parent.iterdir()}

    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    assert modes == {"evaldesk.db": 0o600, "evaldesk.db-wal": 0o600, "evaldesk.db-shm": 0o600}


def test_writes_are_durable_and_keys_are_checked(store: Store, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.store.sqlite.SYNCHRONOUS", DURABLE)
    opened = Database(SqliteFile(database))

    with opened.writing() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }
    opened.close()

    assert found == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 5000, "foreign_keys": 1}


def test_a_read_transaction_can_never_become_a_write(store: Store, database: Path) -> None:
    opened = Database(SqliteFile(database))

    with pytest.raises(WorkspaceError, match="readonly"), opened.reading() as connection:
        connection.exec_driver_sql("DELETE FROM run")

    opened.close()


def test_a_write_holds_the_lock_from_its_first_moment(store: Store, database: Path) -> None:
    opened = Database(SqliteFile(database))

    other = sqlite3.connect(database, timeout=0, isolation_level=None)
    with closing(other), opened.writing(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")

    opened.close()


@pytest.mark.parametrize("n_refused", [3, 99], ids=["for a while", "for long"])
def test_a_writer_that_is_kept_out_tries_again_and_gives_up_with_a_reason(
    store: Store, database: Path, monkeypatch: pytest.MonkeyPatch, n_refused: int
) -> None:
    monkeypatch.setattr(sqlite_module, "BUSY_TIMEOUT_MS", 1)
    opened = Database(SqliteFile(database))
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused: list[str] = []

    def let_go(_c: object, _cursor: object, statement: str, *_: object) -> None:
        refused.append(statement)
        if len(refused) == n_refused:
            other.execute("ROLLBACK")

    event.listen(Engine, "before_cursor_execute", let_go)
    outcome: AbstractContextManager[object] = nullcontext()
    if n_refused == 99:
        outcome = pytest.raises(WorkspaceError, match="another process has been writing")
    with outcome, opened.writing():
        pass
    event.remove(Engine, "before_cursor_execute", let_go)
    other.close()
    opened.close()

    assert refused == ["BEGIN IMMEDIATE"] * min(n_refused, 6)


def test_a_failed_write_leaves_nothing_behind(store: Store, database: Path) -> None:
    opened = Database(SqliteFile(database))

    with suppress(ZeroDivisionError), opened.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'x'")
        raise ZeroDivisionError
    with opened.reading() as connection:
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
    opened.close()

    assert version != "x"


def test_a_database_that_must_exist_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="does not exist"):
        Store.open(tmp_path / "none.db", must_exist=True)

    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "evaldesk.db"
    path.write_bytes(b"my diary, " * 100)

    with pytest.raises(WorkspaceError, match="not a database"):
        Store.open(path)

    assert path.read_bytes() == b"my diary, " * 100


def test_the_database_of_another_program_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "evaldesk.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipe (id INTEGER)")
    before = path.read_bytes()

    with pytest.raises(WorkspaceError, match="another program"):
        Store.open(path)

    assert path.read_bytes() == before


def test_closing_twice_is_no_error(database: Path) -> None:
    store = Store.open(database)
    store.close()
    database.unlink()

    store.close()

    assert not database.exists()


def test_closing_does_not_wait_for_another_writer(database: Path) -> None:
    store = Store.open(database)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        store.close()

        other.execute("ROLLBACK")


def test_closing_reads_few_rows_however_many_there_are(store: Store, plan: Callable[..., int], database: Path) -> None:
    run_id, n_rows, n_hundreds = plan(), 50_000, [0]
    numbers = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)"

    def count() -> int:
        n_hundreds[0] += 1
        return 0

    with store._database.writing() as connection:
        many = f"INSERT INTO run_media {numbers} SELECT ?, printf('%05d', n) FROM number"  # noqa: S608
        connection.exec_driver_sql(many, (n_rows, run_id))
        connection.exec_driver_sql("SELECT count(*) FROM run_media WHERE run_id = ?", (run_id,)).scalar_one()
        connection.connection.dbapi_connection.set_progress_handler(count, 100)  # type: ignore[union-attr]
    store.close()

    with closing(sqlite3.connect(database)) as connected:
        assert connected.execute("SELECT count(*) FROM sqlite_stat1 WHERE tbl = 'run_media'").fetchone() == (2,)
    assert 100 * n_hundreds[0] < n_rows, "steps of SQLite, during which others wait for the write lock"


@pytest.mark.server
@pytest.mark.parametrize("is_first", [True, False], ids=["new database", "current database"])
def test_heavy_libraries_stay_out(database: Path, is_first: bool) -> None:
    if not is_first:
        Store.open(database).close()
    script = """
import sys
from pathlib import Path
from evaldesk.store import Store
from evaldesk.store import database as database_module
heavy = {"alembic", "pandas", "litellm", "plotly", "numpy", "nltk", "psycopg"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
Store.open(Path(sys.argv[1])).close()
print(sorted(heavy & set(sys.modules)))
"""

    printed = subprocess.run([sys.executable, "-c", script, database], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == "[]"


def test_a_full_disk_refuses_a_write_and_takes_it_later(store: Store, plan: Callable[..., int]) -> None:
    run = plan(n_cases=1)
    database = store._database
    with database.writing() as connection:
        n_pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={n_pages}")

    with pytest.raises(WorkspaceError, match=r"evaldesk\.db: the disk is full .*; nothing that was stored is lost"):
        plan(n_cases=500)
    with database.writing() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    second = plan(n_cases=500)

    assert [summary.id for summary in store.runs.list()] == [second, run]
    assert store.runs.summary(second).n_cases == 500


def test_a_queue_of_writers_in_this_process_has_an_end(
    store: Store, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "QUEUE_S", 0.0)
    opened = Database(SqliteFile(database))

    with opened.writing(), pytest.raises(WorkspaceError, match="try again later"), opened.writing():
        pass

    opened.close()


def test_a_thread_that_waits_for_its_turn_learns_that_the_database_was_closed(database: Path) -> None:
    Store.open(database).close()
    for _ in range(20):
        opened, said = Database(SqliteFile(database)), list[str]()

        def write(opened: Database = opened, said: list[str] = said) -> None:
            try:
                with opened.writing():
                    said.append("written")
            except WorkspaceError as error:
                said.append(str(error))

        waiting = [threading.Thread(target=write) for _ in range(3)]
        with opened.writing():
            closing_it = threading.Thread(target=opened.close)
            closing_it.start()
            for thread in waiting:
                thread.start()
        for thread in (*waiting, closing_it):
            thread.join(QUEUE_S / 2)

        assert not any(thread.is_alive() for thread in (*waiting, closing_it))
        assert set(said) <= {"written", f"{database} was closed meanwhile"}


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_database_that_is_gone_is_neither_read_nor_written(store: Store, database: Path, how: str) -> None:
    session = store.sessions.create("hello")
    database.rename(database.with_name("kept.db"))
    if how == "replaced":
        database.touch()

    with pytest.raises(LostDatabaseError, match=how):
        store.sessions.get(session.id)
    with pytest.raises(LostDatabaseError, match=how):
        store.sessions.create("hello")


def test_a_statement_is_compiled_once_for_all_databases_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "first.db") as first:
        asked = first.runs.list()
        with Store.open(tmp_path / "second.db") as second:
            monkeypatch.setattr(SharedDialect, "statement_compiler", None)

            assert second.runs.list() == asked == []


def test_a_disk_that_does_not_let_the_file_be_read_is_told_in_words(store: Store) -> None:
    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
        raise error

    event.listen(Engine, "do_execute", fail)
    try:
        with pytest.raises(
            WorkspaceError, match=r"evaldesk\.db: the disk does not take it .*; nothing that was stored"
        ):
            store.sessions.list()
    finally:
        event.remove(Engine, "do_execute", fail)
