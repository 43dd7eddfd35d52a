"""Named views of the table of cases: addresses that a person stored, for one eval set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select, update

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.store.database import StorePart
from evaldesk.store.failure_steps import folded_name
from evaldesk.store.tables.views import TABLE_VIEW

MAX_VIEWS = 50
"""Of one eval set: a list to choose from has an end."""


@dataclass(frozen=True, slots=True)
class TableViewRow:
    """A view; `address` is the query of its address, without runs."""

    id: int
    name: str
    address: str


class ViewStore(StorePart):
    """The views of a workspace."""

    def of_evalset(self, evalset_id: str) -> Sequence[TableViewRow]:
        """The views of an eval set by name."""
        columns = TABLE_VIEW.c
        rows = select(columns.id, columns.name, columns.address).where(columns.evalset_id == evalset_id)
        with self._database.reading() as connection:
            return [TableViewRow(*row) for row in connection.execute(rows.order_by(columns.folded))]

    def save(self, evalset_id: str, name: str, address: str) -> int:
        """Store an address under a name; a view of that name is replaced. Raises UsageError for one too many."""
        columns, folded = TABLE_VIEW.c, folded_name(name)
        values = {"name": name, "address": address, "saved_at": self._clock()}
        own = columns.evalset_id == evalset_id
        with self._database.writing() as connection:
            old_id: int | None = connection.scalar(select(columns.id).where(own, columns.folded == folded))
            if old_id is not None:
                connection.execute(update(TABLE_VIEW).where(columns.id == old_id).values(values))
                return old_id
            if (connection.scalar(select(func.count()).select_from(TABLE_VIEW).where(own)) or 0) >= MAX_VIEWS:
                raise UsageError(f"This eval set has {MAX_VIEWS} views; delete one first.", field="view-name")
            row = values | {"evalset_id": evalset_id, "folded": folded}
            view_id: int = connection.execute(insert(TABLE_VIEW).values(row).returning(columns.id)).scalar_one()
            return view_id

    def remove(self, view_id: int) -> None:
        """Delete a view. Raises NotFoundError."""
        with self._database.writing() as connection:
            if not connection.execute(delete(TABLE_VIEW).where(TABLE_VIEW.c.id == view_id)).rowcount:
                raise NotFoundError("this view is not there any more")
