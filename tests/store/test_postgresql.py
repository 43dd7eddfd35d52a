"""A store on a server: made once, upgraded, shared by processes, and its refusals as sentences."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, inspect, text
from tests.postgresql_server import empty_database
from tests.store.conftest import Clock

from evaldesk.errors import UsageError, WorkspaceError
from evaldesk.model import TrialResult
from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store
from evaldesk.store import postgresql as postgresql_module
from evaldesk.store.database import Database
from evaldesk.store.postgresql import PostgresqlServer
from evaldesk.store.store import HEAD
from evaldesk.store.upgrade import alembic_config

pytestmark = pytest.mark.server

Plan = Callable[..., int]
End = Callable[..., TrialResult]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> DatabaseUrl:
    """The database of the server, without rows."""
    return empty_database(request)


@pytest.fixture
def fresh(postgresql: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database without tables."""
    with _connected(postgresql) as connection:
        connection.exec_driver_sql("CREATE DATABASE fresh")
    url = replace(postgresql, database="fresh")
    yield url
    with _connected(postgresql) as connection:
        connection.exec_driver_sql("DROP DATABASE fresh WITH (FORCE)")


@contextmanager
def _connected(url: DatabaseUrl) -> Iterator[Connection]:
    """A connection whose statements are no transaction."""
    engine: Engine = PostgresqlServer(url).reading_engine().execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        connection.rollback()
        raw.read_only = False
        yield connection
    engine.dispose()


def _columns(url: DatabaseUrl) -> dict[str, dict[str, tuple[str, bool]]]:
    engine = PostgresqlServer(url).reading_engine()
    seen = inspect(engine)
    found = {
        table: {column["name"]: (str(column["type"]), column["nullable"]) for column in seen.get_columns(table)}
        for table in seen.get_table_names()
    }
    engine.dispose()
    return found


def test_migrations_make_the_tables_that_are_declared(fresh: DatabaseUrl, postgresql: DatabaseUrl) -> None:
    from alembic import command

    engine = PostgresqlServer(fresh).writing_engine()
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()

    assert _columns(fresh) == _columns(postgresql)
    with Store.open(fresh) as store:
        assert store.runs.list() == []


def test_an_older_database_is_upgraded_when_it_is_opened(fresh: DatabaseUrl, postgresql: DatabaseUrl) -> None:
    from alembic import command

    engine = PostgresqlServer(fresh).writing_engine()
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0004")
    engine.dispose()

    Store.open(fresh).close()

    assert _columns(fresh) == _columns(postgresql)


def test_threads_that_open_an_empty_database_at_once_make_it_once(fresh: DatabaseUrl) -> None:
    faults: list[BaseException] = []

    def open_it() -> None:
        try:
            Store.open(fresh).close()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert faults == []
    with _connected(fresh) as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == [HEAD]


def test_tables_of_another_program_are_left_alone(fresh: DatabaseUrl) -> None:
    with _connected(fresh) as connection:
        connection.exec_driver_sql("CREATE TABLE run (id INTEGER)")

    with pytest.raises(WorkspaceError, match=r"fresh.* holds tables of another program"):
        Store.open(fresh)

    with _connected(fresh) as connection:
        tables = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert tables.scalars().all() == ["run"]


def test_a_database_of_a_newer_version_is_refused(fresh: DatabaseUrl) -> None:
    Store.open(fresh).close()
    with _connected(fresh) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(WorkspaceError, match=r"written by a newer Evaldesk \(revision 9999"):
        Store.open(fresh)


def test_a_server_that_is_not_there_is_a_sentence_without_the_password(postgresql: DatabaseUrl) -> None:
    url = replace(postgresql, database="nowhere", password="a-long-password")

    with pytest.raises(WorkspaceError) as refused:
        Store.open(url)

    assert 'database "nowhere" does not exist' in str(refused.value)
    assert "a-long-password" not in f"{refused.value} {url} {url!r}"


def test_a_server_that_goes_away_is_a_sentence(postgresql: DatabaseUrl, tmp_path: Path) -> None:
    server = PostgresqlServer(replace(postgresql, host=str(tmp_path)))
    vars(server)["is_read_only"] = False  # it answered this before it went
    gone = Database(server)

    with pytest.raises(WorkspaceError, match=r"the server does not answer .*; nothing that was stored is lost"):
        gone.reading().__enter__()
    with pytest.raises(WorkspaceError, match=r"the server does not answer .*; nothing that was stored is lost"):
        gone.writing().__enter__()

    gone.close()


def test_without_the_driver_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(WorkspaceError, match=r"needs psycopg; install it with: pip install 'evaldesk\[postgres\]'"):
        Store.open(DatabaseUrl("db.example", "evals"))


def test_a_connection_that_the_server_ended_is_made_again(store: Store, plan: Plan, place: DatabaseUrl) -> None:
    run = plan()
    others = "FROM pg_stat_activity WHERE application_name = 'evaldesk' AND pid <> pg_backend_pid()"
    with _connected(place) as connection:
        while connection.exec_driver_sql(f"SELECT pg_terminate_backend(pid) {others}").all():
            continue  # until all have ended

    assert store.runs.summary(run).n_cases == 3
    assert plan() == run + 1


def test_a_connection_that_ends_in_a_transaction_is_a_sentence(store: Store, plan: Plan) -> None:
    run = plan()

    def end_in_the_middle() -> None:
        with store._database.writing() as connection:
            connection.execute(text("UPDATE run SET note = 'half'"))
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(WorkspaceError, match="nothing that was stored is lost"):
        end_in_the_middle()

    assert store.runs.summary(run).note == ""


def test_a_writer_that_waits_too_long_is_told_so(
    place: DatabaseUrl, plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_module, "LOCK_TIMEOUT_S", 1)
    second = Database(PostgresqlServer(place))

    with (
        store._database.writing(),
        pytest.raises(WorkspaceError, match=r"another process has been writing for \d+ s; try again later"),
        second.writing(),
    ):
        pass

    second.close()
    assert plan() == 1


def test_a_writer_that_stands_still_lets_the_others_write(
    place: DatabaseUrl, plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan()
    monkeypatch.setattr(postgresql_module, "STILL_S", 1)
    second = Database(PostgresqlServer(place))

    def stand_still() -> None:
        with second.writing() as connection:
            connection.execute(text("UPDATE run SET note = 'half'"))
            assert plan() == run + 1  # it waits until the server has ended the other
            connection.execute(text("UPDATE run SET note = 'late'"))

    with pytest.raises(WorkspaceError, match=r"this process stood still for \d+ s while it wrote"):
        stand_still()

    assert store.runs.summary(run).note == ""
    with second.writing() as connection:
        connection.execute(text("UPDATE run SET note = 'again'"))
    second.close()
    assert store.runs.summary(run).note == "again"


def test_a_reader_sees_one_state_while_another_writes(store: Store, plan: Plan, clock: Clock) -> None:
    run = plan()
    with store._database.reading() as connection:
        before = connection.execute(text("SELECT note FROM run")).scalars().all()
        store.runs.set_note(run, "new")
        after = connection.execute(text("SELECT note FROM run")).scalars().all()

    assert (before, after, store.runs.summary(run).note) == ([""], [""], "new")


def test_the_character_nul_is_kept_as_its_picture(store: Store, plan: Plan, end: End) -> None:
    run = plan()

    store.runs.set_note(run, "a\0b")
    store.runs.record([end(run, 0, 0, logs="\0")])

    assert store.runs.summary(run).note == "a\u2400b"
    assert store.runs.trial(run, 0, 0).logs == "\0"
    assert store.runs.list(text="\0") == [store.runs.summary(run)]


def test_an_id_that_no_index_holds_is_refused_in_words(store: Store, plan: Plan) -> None:
    names = "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(3_000))

    with pytest.raises(UsageError, match="too long for PostgreSQL"):
        plan(ids=[names])

    assert store.runs.list() == []


def test_the_driver_is_loaded_for_a_server_alone() -> None:
    script = "import sys; import evaldesk.desk.desk; print('psycopg' in sys.modules)"

    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == "False"
