"""The space of removed rows: SQLite keeps it for later rows, until it is given back to the disk.

A database that an earlier version made cannot give space back without being written anew, which would keep others from
writing for as long as that takes. Its free space is used by later rows.
"""

from __future__ import annotations

import time

from sqlalchemy import Connection

from evaldesk.store.database import Database, FreedSpace
from evaldesk.store.sqlite import INCREMENTAL

MOST_PAGES = 250
"""So many pages are moved in one transaction: 1 MB. Fewer free pages are left for later rows."""
PAUSE_S = 0.1
"""After each transaction as long as it took, at most so long: SQLite tells no other writer that its turn has come."""


def give_back(database: Database) -> FreedSpace:
    """Shorten the file by its free pages, in steps that let others write."""
    with database.reading() as connection:
        page_size, n_free = _pragma(connection, "page_size"), _pragma(connection, "freelist_count")
        is_able = _pragma(connection, "auto_vacuum") == INCREMENTAL
    n_given_back = 0
    is_going = is_able and n_free >= MOST_PAGES
    while is_going:
        began = time.monotonic()
        with database.writing() as connection:
            n_moved = _shorten(connection)
            n_free = _pragma(connection, "freelist_count")
        n_given_back += n_moved
        is_going = n_free > 0 and n_moved > 0
        time.sleep(min(time.monotonic() - began, PAUSE_S))
    if n_given_back:
        database.write_log_back()  # only then the file is shorter
    return FreedSpace(n_given_back * page_size, n_free * page_size)


def _shorten(connection: Connection) -> int:
    """The number of pages by which one step shortens the file."""
    before = _pragma(connection, "page_count")
    for _ in range(min(MOST_PAGES, _pragma(connection, "freelist_count"))):
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")  # the driver ends a longer one after its first page
    return before - _pragma(connection, "page_count")


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
