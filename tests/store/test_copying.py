"""A workspace moved to a server and back: killed at any point, compared row by row, and never over something else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    DateTime,
    Executable,
    Float,
    Integer,
    LargeBinary,
    Table,
    insert,
    select,
    update,
)
from tests.forked_commands import ForkedCommands
from tests.store.conftest import plan_run
from tests.store.test_postgresql import _connected

from evaldesk.desk.store_copies import copy_store, named_database
from evaldesk.errors import ConflictError, EvaldeskError, UsageError, WorkspaceError
from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store, copying, hold_workspace
from evaldesk.store.database import execute_many
from evaldesk.store.tables import METADATA, NUMBERED
from evaldesk.store.tables.columns import UtcTime
from evaldesk.store.tables.runs import RUN, TRANSCRIPT

StoreAddress = Path | DatabaseUrl
N = 7
"""Rows of each table."""

MOMENT = datetime(2026, 3, 29, 1, 59, 59, 999_999, UTC)
KNOWN: dict[str, Any] = {
    "status": "finished",
    "config": '{"agent":{"id":"a","target":"a:b"},"evalset_id":"calc","n":2}',
    "stop": None,
    "places": "",
    "shared_state": "",
}
"""Values of columns that a store reads as more than text."""
TEXTS = ("", "plain", "quote ' \" \\ %s $1", "Grüße 𝄞 \u202e", "two\nlines\ttab", "ａ", "Z")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with rows in every table, and with numbers that were given to rows which are gone."""
    file = _file(tmp_path / "from")
    Store.open(file).close()
    _fill(file)
    return tmp_path / "from"


@pytest.fixture
def server(postgresql: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database without tables."""
    with _connected(postgresql) as connection:
        connection.exec_driver_sql("CREATE DATABASE target")
    yield replace(postgresql, database="target")
    with _connected(postgresql) as connection:
        connection.exec_driver_sql("DROP DATABASE target WITH (FORCE)")


def _file(folder: Path) -> Path:
    return folder / ".evaldesk" / "evaldesk.db"


def _fill(place: StoreAddress) -> None:
    """Put N rows into each table, one of them with ids that are given up again."""
    with Store.open(place) as store, store._database.writing() as connection:
        for table in METADATA.sorted_tables:
            connection.execute(insert(table), [_row(table, index) for index in range(N)])
        connection.execute(insert(METADATA.tables["import_record"]), _row(METADATA.tables["import_record"], 40))
        connection.execute(METADATA.tables["import_record"].delete().where(METADATA.tables["import_record"].c.id == 41))


def _row(table: Table, index: int) -> dict[str, Any]:
    return {column.name: _value(column, index) for column in table.columns}


def _value(column: Column[Any], index: int) -> Any:
    """A value that depends on the index and the kind of column alone, so that keys lead to the rows they name."""
    if column.name == "deleted_at":
        return None
    if column.name in KNOWN:
        return KNOWN[column.name]
    if isinstance(column.type, Boolean):
        return index % 2 == 0
    if isinstance(column.type, Integer):
        return index + 1
    if isinstance(column.type, Float):
        return (0.1 + 0.2, -0.0, 1e308, 5e-324, math.pi, 1 / 3, 2.0**53 + 2)[index % 7]
    if isinstance(column.type, LargeBinary):
        return bytes([index, 0, 255]) * 100
    if isinstance(column.type, UtcTime | DateTime):
        return MOMENT + timedelta(microseconds=index, days=index)
    return f"{TEXTS[index % len(TEXTS)]}{index}"


def _rows(place: StoreAddress) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, in an order that no engine decides."""
    with Store.open(place) as store, store._database.reading() as connection:
        return {
            name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for name, table in METADATA.tables.items()
        }


def _copy(source: StoreAddress, target: StoreAddress) -> Sequence[copying.TableCopy]:
    return copy_store(source, target, lambda *_: None)


def test_every_row_of_every_table_is_there_and_back(folder: Path, server: DatabaseUrl, tmp_path: Path) -> None:
    (tmp_path / "back").mkdir()
    there = _copy(_file(folder), server)
    back = _copy(server, _file(tmp_path / "back"))

    wanted = _rows(_file(folder))
    assert [len(rows) for rows in wanted.values()] == [N] * len(METADATA.tables)
    assert _rows(server) == wanted
    assert _rows(_file(tmp_path / "back")) == wanted
    assert there == back
    assert {table.name: table.n_rows for table in there} == dict.fromkeys(METADATA.tables, N)


def test_numbers_of_rows_that_are_gone_are_given_to_no_other(folder: Path, server: DatabaseUrl, tmp_path: Path) -> None:
    (tmp_path / "back").mkdir()
    _copy(_file(folder), server)
    _copy(server, _file(tmp_path / "back"))

    for place in (_file(folder), server, _file(tmp_path / "back")):
        with Store.open(place) as store, store._database.writing() as connection:
            given = {}
            for table in NUMBERED:
                row = {name: value for name, value in _row(table, 3).items() if name != "id"}
                given[table.name] = connection.execute(insert(table).values(row).returning(table.c.id)).scalar_one()
        assert given == {table.name: 42 if table.name == "import_record" else N + 1 for table in NUMBERED}


@pytest.mark.parametrize("gap", [5, 13])
@pytest.mark.parametrize("way", ["to a server", "from a server"])
def test_a_copy_that_is_killed_at_any_step_is_finished_by_the_same_command(
    folder: Path,
    server: DatabaseUrl,
    postgresql: DatabaseUrl,
    tmp_path: Path,
    commands: ForkedCommands,
    way: str,
    gap: int,
) -> None:
    (tmp_path / "to").mkdir()
    places: tuple[StoreAddress, StoreAddress] = (_file(folder), server)
    words = (str(folder), str(server))
    if way == "from a server":
        _copy(*places)
        places, words = (server, _file(tmp_path / "to")), (str(server), str(tmp_path / "to"))
    wanted, at = _rows(places[0]), gap

    while commands.killed(at, "store", "copy", *words) is None:
        at += gap
        _until_nobody_is_connected(postgresql)
        if _is_there(places[1]):  # whole, or before its tables were made, which this look does then
            assert _rows(places[1]) in (wanted, {name: [] for name in wanted})
            _until_nobody_is_connected(postgresql)

    assert at > 4 * gap
    assert _rows(places[1]) == wanted


def _until_nobody_is_connected(postgresql: DatabaseUrl) -> None:
    """Wait for the server to see the end of the one that was killed: its database is in use until then."""
    with _connected(postgresql) as connection:
        while connection.exec_driver_sql("SELECT 1 FROM pg_stat_activity WHERE datname = 'target'").all():
            continue


def _is_there(place: StoreAddress) -> bool:
    """Whether the database can be opened: a copy that is not finished says so."""
    if isinstance(place, Path) and not (place.is_file() and place.stat().st_size):
        return False
    said = ""
    try:
        Store.open(place, must_exist=True).close()
    except WorkspaceError as error:
        said = str(error)
    assert not said or "is not finished; the same `evaldesk store copy`" in said or "does not exist" in said
    return not said


def test_rows_go_over_in_transactions_of_few(
    folder: Path, server: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "MOST_ROWS", 2)
    written: list[int] = []

    def counted(connection: Connection, statement: Executable, rows: Sequence[Any]) -> None:
        written.append(len(rows))
        execute_many(connection, statement, rows)

    monkeypatch.setattr("evaldesk.store.copying.execute_many", counted)

    _copy(_file(folder), server)

    assert max(written) <= 3
    assert sum(written) == N * len(METADATA.tables)


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.server)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    """A place for a copy."""
    if request.param == "PostgreSQL":
        url: DatabaseUrl = request.getfixturevalue("server")
        return url
    (tmp_path / "to").mkdir()
    return _file(tmp_path / "to")


@pytest.mark.server
def test_a_copy_that_is_whole_may_be_made_again(folder: Path, target: StoreAddress) -> None:
    first = _copy(_file(folder), target)

    assert _copy(_file(folder), target) == first


def test_what_was_changed_since_a_copy_broke_off_is_changed_in_it(folder: Path, target: StoreAddress) -> None:
    with pytest.raises(RuntimeError):
        copy_store(_file(folder), target, _raised_at("checking"))
    with Store.open(_file(folder)) as store, store._database.writing() as connection:
        connection.execute(update(RUN).where(RUN.c.id == 2).values(note="changed"))
        connection.execute(RUN.delete().where(RUN.c.id == 3))
        connection.execute(RUN.delete().where(RUN.c.id == N))
        connection.execute(insert(RUN), _row(RUN, 20))
        connection.execute(TRANSCRIPT.delete().where(TRANSCRIPT.c.run_id == 4))

    _copy(_file(folder), target)

    wanted = _rows(_file(folder))
    assert {row[0] for row in wanted["run"]} == {1, 2, 4, 5, 6, 21}
    assert _rows(target) == wanted


def _raised_at(wanted: str) -> copying.Watch:
    def watch(step: str, *_: object) -> None:
        if step == wanted:
            raise RuntimeError

    return watch


def test_a_write_into_the_source_meanwhile_keeps_the_copy_closed(folder: Path, target: StoreAddress) -> None:
    with Store.open(_file(folder)) as store:
        with pytest.raises(ConflictError, match="was written while it was copied"):
            copy_store(_file(folder), target, lambda *_: store.runs.set_note(1, "meanwhile"))
        assert not _is_there(target)

    _copy(_file(folder), target)

    assert _rows(target) == _rows(_file(folder))


def test_a_write_into_a_server_meanwhile_keeps_the_copy_closed(
    folder: Path, server: DatabaseUrl, tmp_path: Path
) -> None:
    (tmp_path / "back").mkdir()
    _copy(_file(folder), server)
    with Store.open(server) as store, pytest.raises(ConflictError, match="was written while it was copied"):
        copy_store(server, _file(tmp_path / "back"), lambda *_: store.runs.set_note(1, "meanwhile"))

    assert not _is_there(_file(tmp_path / "back"))


def test_a_target_with_other_rows_is_refused_and_stays(folder: Path, target: StoreAddress) -> None:
    with Store.open(target) as store:
        plan_run(store)
    before = _rows(target)

    with pytest.raises(ConflictError, match=r"holds something else: table \w+ has 0 rows, and 7 in the source"):
        _copy(_file(folder), target)

    assert _rows(target) == before


def test_a_target_that_differs_in_one_value_is_refused_and_stays(folder: Path, target: StoreAddress) -> None:
    _copy(_file(folder), target)
    with Store.open(target) as store:
        store.runs.set_note(1, "of the target")
    before = _rows(target)

    with pytest.raises(ConflictError, match="holds something else"):
        _copy(_file(folder), target)

    assert _rows(target) == before


def test_an_unfinished_copy_of_another_source_is_refused(folder: Path, target: StoreAddress, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        copy_store(_file(folder), target, _raised_at("copying"))
    Store.open(_file(tmp_path / "other")).close()

    with pytest.raises(WorkspaceError, match="unfinished copy of another database"):
        _copy(_file(tmp_path / "other"), target)


def test_an_empty_target_with_tables_is_taken(folder: Path, target: StoreAddress) -> None:
    Store.open(target).close()

    _copy(_file(folder), target)

    assert _rows(target) == _rows(_file(folder))


def test_nobody_copies_into_a_server_on_which_a_desk_is_open(folder: Path, server: DatabaseUrl) -> None:
    with Store.open(server) as store:
        assert store.runs.list() == []
        with pytest.raises(WorkspaceError, match="a desk or a command is open on"):
            _copy(_file(folder), server)

    _copy(_file(folder), server)


def test_nobody_copies_while_a_desk_is_open_on_the_file(folder: Path, server: DatabaseUrl) -> None:
    with hold_workspace(folder / ".evaldesk", url="http://here"), pytest.raises(WorkspaceError, match="is held by"):
        _copy(_file(folder), server)


def test_a_run_that_is_played_is_waited_for(folder: Path, target: StoreAddress) -> None:
    from evaldesk.desk.process_owner import current_owner

    with Store.open(_file(folder)) as store:
        run = plan_run(store)
        store.runs.set_status(run, "running", driver=current_owner())

    with pytest.raises(ConflictError, match=f"run {run} of .* is being played; stop it"):
        _copy(_file(folder), target)

    assert not _is_there(target)


def test_a_character_that_a_server_refuses_is_its_picture_there(folder: Path, server: DatabaseUrl) -> None:
    with Store.open(_file(folder)) as store:
        store.runs.set_note(1, "zero \0 inside")

    _copy(_file(folder), server)
    with Store.open(server) as store:
        assert store.runs.summary(1).note == "zero \u2400 inside"
    _copy(_file(folder), server)


def test_a_name_that_a_server_cannot_hold_is_named_with_its_table(folder: Path, server: DatabaseUrl) -> None:
    import random

    letters = random.Random(4)
    with Store.open(_file(folder)) as store, store._database.writing() as connection:
        table = METADATA.tables["case_metric"]
        name = "".join(chr(letters.randrange(0x4E00, 0x9FFF)) for _ in range(4_000))
        connection.execute(insert(table), _row(table, 1) | {"metric": name})

    with pytest.raises(UsageError, match=r"table case_metric: .* too long for PostgreSQL"):
        _copy(_file(folder), server)


def test_passwords_are_in_no_message(folder: Path, commands: ForkedCommands) -> None:
    address = "postgresql://evals:hunter2secret@127.0.0.1:1/evals"

    done = commands.run("store", "copy", str(folder), address)

    assert done.returncode == 2
    assert "postgresql://evals@127.0.0.1:1/evals" in done.stderr
    assert "hunter2secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("text", ["postgresql://db", "mysql://db/evals", "/no/such/folder"])
def test_a_place_that_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(EvaldeskError, match=r"^TO"):
        named_database(text, "TO")


def test_a_source_is_no_target(folder: Path) -> None:
    with pytest.raises(UsageError, match="is the source and the target"):
        _copy(_file(folder), _file(folder))


def test_a_workspace_without_a_database_is_no_source(tmp_path: Path, server: DatabaseUrl) -> None:
    with pytest.raises(WorkspaceError, match="does not exist"):
        _copy(_file(tmp_path), server)
