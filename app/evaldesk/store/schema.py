"""Bring the database to the schema of this code; Alembic is loaded only for one that is older."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.errors import WorkspaceError
from evaldesk.store.database import keep_a_log, make_private_file, make_private_folder, writing_engine
from evaldesk.store.own_folder import check_no_links
from evaldesk.store.tables import METADATA

HEAD = "0003"
# As Alembic makes it, which reads from it where the database is.
_REVISIONS = (
    "CREATE TABLE IF NOT EXISTS alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def prepare(path: Path) -> None:
    """Create or upgrade the database at `path`; nothing is written when it is current, foreign or newer.

    Raises WorkspaceError when there is a link in its folder, when it cannot be read or written, belongs to another
    program, or to a newer Evaldesk.
    """
    try:
        check_no_links(path.parent)
        if stored_revision(path) == HEAD:
            return
        make_private_folder(path.parent)
        with _alone_in(path.parent):
            _upgrade(path)
    except (sqlite3.Error, SQLAlchemyError, OSError) as error:
        raise WorkspaceError(f"{path}: {error}; name another workspace, or move the file away") from error


def stored_revision(path: Path) -> str | None:
    """The revision that the file says it has; None for a file that is missing or empty."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "alembic_version" in tables:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return str(row[0]) if row else None
    if tables:
        raise WorkspaceError(f"{path} is a database of another program; name another workspace, or move it away")
    return None


def _upgrade(path: Path) -> None:
    revision = stored_revision(path)
    if revision == HEAD:
        return
    if revision is None:
        _create(path)
        return
    from evaldesk.store.upgrade import check_known, upgrade_copied

    check_known(path, revision, HEAD)
    upgrade_copied(path, HEAD)


def _create(path: Path) -> None:
    """Make the tables as they are declared, which equals the result of the migrations: all of them, or none."""
    make_private_file(path)
    engine = writing_engine(path)
    try:
        keep_a_log(engine)
        with engine.begin() as connection:
            METADATA.create_all(connection, checkfirst=False)
            connection.exec_driver_sql(_REVISIONS)
            connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (HEAD,))
    finally:
        engine.dispose()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
