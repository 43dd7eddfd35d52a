"""Questions of a store: a query becomes a method that opens a reading transaction."""

from __future__ import annotations

import inspect

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from evaldesk.errors import WorkspaceError
from evaldesk.store import RunStore, Store
from evaldesk.store.database import reading
from evaldesk.store.runs import run_queries


def test_a_question_keeps_the_words_and_options_of_its_query() -> None:
    assert inspect.getdoc(RunStore.case_rows) == inspect.getdoc(run_queries.case_rows)
    assert inspect.signature(RunStore.trials) == inspect.signature(run_queries.trials)


def test_a_question_cannot_write(store: Store) -> None:
    def wipe(connection: Connection) -> None:
        connection.execute(text("DELETE FROM run"))

    with pytest.raises((DBAPIError, WorkspaceError), match=r"readonly|read-only"):
        reading(wipe)(store.runs)


def test_the_values_of_a_question_are_given_on(store: Store) -> None:
    def add(_: Connection, left: int, *, right: int = 1) -> int:
        return left + right

    assert (reading(add)(store.runs, 2), reading(add)(store.runs, 2, right=3)) == (3, 5)


def test_a_question_that_is_asked_while_the_store_is_closed_leaves_no_connection(store: Store) -> None:
    with store._database.reading() as connection:
        held = connection.connection.driver_connection
        store.close()
        assert connection.execute(text("SELECT 1")).scalar_one() == 1

    with pytest.raises(Exception, match="closed"):
        held.execute("SELECT 1")  # type: ignore[union-attr]
