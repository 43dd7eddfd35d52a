"""Migrate a database with Alembic: a copy first, then one transaction for each migration."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from evaldesk.errors import WorkspaceError
from evaldesk.paths import make_private_file
from evaldesk.store.sqlite import LOG, ask_for, writing_engine


def alembic_config() -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    # Alembic reads the option with configparser, to which a percent sign is special.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def check_known(place: object, revision: str, head: str) -> None:
    """Raise WorkspaceError when `revision` is none of ours, as that of a newer Evaldesk would be."""
    revisions = {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}
    if revision not in revisions:
        raise WorkspaceError(
            f"{place} was written by a newer Evaldesk (revision {revision}, this one knows up to {head}); "
            "install that version, or name another workspace"
        )


def upgrade_copied(path: Path, head: str) -> None:
    """Take the database to `head`. The old one stays beside it as `NAME.before-HEAD`."""
    make_private_file(path)
    _copy(path, path.with_name(f"{path.name}.before-{head}"))
    upgrade(path)


def upgrade(path: Path) -> None:
    """Take the database to the last migration, wherever it is."""
    # Tables are rebuilt by some migrations; their foreign keys are checked at the end of each instead.
    engine = writing_engine(path, foreign_keys="OFF")
    try:
        ask_for(engine, LOG)
        with engine.connect() as connection:
            upgrade_on(connection)
    finally:
        engine.dispose()


def upgrade_on(connection: Connection) -> None:
    """Take the database of the connection to the last migration, in its transaction where it has begun one."""
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _copy(path: Path, copy: Path) -> None:
    make_private_file(copy)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        for connection in (source, target):
            connection.execute("PRAGMA trusted_schema=OFF").close()
        source.backup(target)
