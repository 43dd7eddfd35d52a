"""A desk of which only the database is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from evaldesk.desk.desk import Desk
from evaldesk.desk.labels import Person
from evaldesk.store import Store


def desk_on(store: Store) -> Desk:
    """A desk without eval sets whose runs, labels and sessions are in `store`."""
    return cast("Desk", SimpleNamespace(store=store, evalsets=SimpleNamespace(list=list), me="", person=Person(store)))
