"""A query that broke off holds no old state of the database, however long its error is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from evaldesk.store import Store
from evaldesk.store.database import Database

Transaction = Callable[[Database], AbstractContextManager[Connection]]


def broken_off(database: Database, transaction: Transaction) -> Exception:
    """The error of a query that was not read to its end; its frames hold the rows that are left."""
    try:
        with transaction(database) as connection:
            rows = connection.execute(text("SELECT id FROM session ORDER BY id"))
            raise ValueError(rows.fetchone())
    except ValueError as error:
        return error


@pytest.mark.parametrize("transaction", [Database.reading, Database.writing], ids=["reading", "writing"])
def test_a_query_that_broke_off_leaves_no_old_state_to_later_ones(database: Path, transaction: Transaction) -> None:
    with Store.open(database) as store:
        for number in range(3):
            store.sessions.create("hello", f"Talk {number}")
        # More than the pool has: each connection would be left in the state of now.
        errors = [broken_off(store._database, transaction) for _ in range(20)]

        new = store.sessions.create("hello", "later")

        assert len(errors) == 20
        assert store.sessions.get(new.id).title == "later"
        assert {each.title for each in store.sessions.list()} == {"Talk 0", "Talk 1", "Talk 2", "later"}
