"""Which process plays a run: taken by one of those that ask at the same time, never by two."""

from __future__ import annotations

from sqlalchemy import Connection, update

from evaldesk.store.tables import RUN


def claim(connection: Connection, run_id: int, driver: str, was: str) -> bool:
    """Write `driver` over `was`; False when somebody else wrote there first."""
    changed = connection.execute(
        update(RUN).where(RUN.c.id == run_id, RUN.c.driver == was, RUN.c.deleted_at.is_(None)).values(driver=driver)
    )
    return changed.rowcount == 1
