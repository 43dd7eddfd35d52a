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
