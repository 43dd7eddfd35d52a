"""Rows that Evaldesk never wrote, in every column of every table: each page shows them, or names the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Table
from sqlalchemy.exc import DBAPIError
from tests.postgresql_server import ENGINES, place_of
from tests.security.colleague import OF_ENGINE, Colleague, colleague_of
from tests.security.conftest import Fort
from tests.security.office import copy_of_fort

from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store

VALUES: tuple[Any, ...] = ('{"a":', "[5]", "text", None, 2**62, 1e308, -5, b"\xff\xfe\x00", float("inf"))
"""Cut JSON, JSON of another shape, text, NULL, huge, negative, bytes, infinite; a column gets one that it takes."""


@pytest.fixture(params=ENGINES)
def fort(request: pytest.FixtureRequest, open_fort: Callable[..., Fort], tmp_path: Path) -> Fort:
    place = place_of(request, tmp_path)
    if isinstance(place, DatabaseUrl):
        copy_of_fort(tmp_path / "workspace", place)
        return open_fort(folder="shared", store=place)
    return open_fort()


@contextmanager
def broken_rows(colleague: Colleague, table: Table, numbers: Iterator[int]) -> Iterator[int]:
    """Each column outside of the key of all rows holds the next value that it takes; gives how many took one."""
    keys = list(table.primary_key.columns)
    with colleague.engine.begin() as connection:
        rows = [dict(row._mapping) for row in connection.execute(table.select())]
    n_written = 0
    for column in table.columns:
        if column not in keys:
            n_written += any(_takes(colleague, column, VALUES[next(numbers) % len(VALUES)]) for _ in VALUES)
    yield n_written
    with colleague.engine.begin() as connection:
        for row in rows:
            of_row = [key == row[key.name] for key in keys]
            connection.execute(table.update().where(*of_row).values(row))


def _takes(colleague: Colleague, column: Column[Any], value: Any) -> bool:
    name = f'"{column.name}"'
    with suppress(DBAPIError, OverflowError), colleague.engine.begin() as connection:
        mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
        connection.exec_driver_sql(f'UPDATE "{column.table.name}" SET {name} = {mark}', (value,))  # noqa: S608
        return True
    return False


@pytest.mark.long
def test_broken_values_in_every_column_break_no_page(fort: Fort) -> None:
    colleague = colleague_of(_place(fort))
    reads = [fort.address(route) for route in fort.routes() if "GET" in (route.methods or ())]
    numbers, broken, n_columns = count(), list[tuple[str, str, str]](), 0

    for index, table in enumerate(colleague.tables.sorted_tables):
        if table.name in OF_ENGINE or table.name == "alembic_version":
            continue
        with broken_rows(colleague, table, numbers) as n_written:
            n_columns += n_written
            for address in reads[index % 3 :: 3]:
                answer = fort.get(address)
                if answer.status_code >= 500:
                    broken.append((table.name, address, answer.text))
    colleague.engine.dispose()

    assert broken == []
    assert n_columns > 150


def _place(fort: Fort) -> Path | DatabaseUrl:
    return fort.desk.settings.store or fort.desk.settings.database_file


def test_the_sentence_names_the_table_the_row_the_column_and_both_values(fort: Fort) -> None:
    colleague = colleague_of(_place(fort))
    mode = colleague.tables.tables["mode"]
    with colleague.engine.begin() as connection:
        connection.execute(mode.update().where(mode.c.id == 1).values(fixed_in=-5))
    colleague.engine.dispose()

    error = fort.desk.store.broken_row_error(ValueError())

    assert str(error) == (
        f"{fort.desk.store._database.name}: table mode, row id 1: fixed_in must be a whole number from 0 to 2**53, "
        "got -5. Another program wrote it, or the file is damaged. Correct or delete that row with SQL, or put a "
        "backup in place"
    )


@pytest.mark.parametrize(
    ("table", "column", "value", "wanted"),
    [
        ("run_case", "strip", "pPp", "strip must be of the letters .pfeu"),
        ("run_case", "strip", "pppppp", "strip must be of one letter for each trial"),
        ("run", "config", '{"agent":', "config is not JSON"),
        ("import_record", "status", "gone", "status must be one of importing"),
    ],
)
def test_a_value_of_the_right_type_and_another_meaning_is_named(
    fort: Fort, table: str, column: str, value: str, wanted: str
) -> None:
    colleague = colleague_of(_place(fort))
    with colleague.engine.begin() as connection:
        connection.execute(colleague.tables.tables[table].update().values({column: value}))
    colleague.engine.dispose()

    assert wanted in str(fort.desk.store.broken_row_error(KeyError()))


def test_sound_rows_are_behind_no_error(fort: Fort) -> None:
    assert fort.desk.store.broken_row_error(ValueError()) is None
    assert isinstance(fort.desk.store, Store)
