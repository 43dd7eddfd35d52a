"""Changes of a run by those who read it before: what became of it meanwhile is not written over."""

from __future__ import annotations

from sqlalchemy import Connection, update

from evaldesk.store.tables import RUN
from evaldesk.store.values import RunSummary


def is_still(connection: Connection, seen: RunSummary) -> bool:
    """Whether the run stands and is driven as it was `seen`; it stays so until the transaction ends."""
    same = (RUN.c.id == seen.id, RUN.c.status == seen.status, RUN.c.driver == seen.driver, RUN.c.deleted_at.is_(None))
    return connection.execute(update(RUN).where(*same).values(driver=seen.driver)).rowcount == 1
