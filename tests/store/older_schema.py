"""Databases of earlier versions: tables, indexes and columns that came later are dropped, whatever they are."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from sqlalchemy import Connection, inspect, text

from evaldesk.store import upgrade
from evaldesk.store.sqlite import writing_engine
from evaldesk.store.tables import METADATA


def make_older(connection: Connection, revision: str, folder: Path) -> None:
    """Give a database of any engine the schema of a revision, whose migrations make an example in the folder."""
    older_columns, older_indexes = _schema_of(revision, folder / f"of_{revision}.db")
    now = inspect(connection)
    for table in reversed(METADATA.sorted_tables):  # a table before the tables that it refers to
        old_columns = older_columns.get(table.name)
        if old_columns is None:
            connection.execute(text(f"DROP TABLE {table.name}"))
            continue
        columns = [column["name"] for column in now.get_columns(table.name) if column["name"] not in old_columns]
        for index in now.get_indexes(table.name):
            if index["name"] not in older_indexes:  # one of a later column would keep that from being dropped
                connection.execute(text(f"DROP INDEX {index['name']}"))
        for column in columns:
            connection.execute(text(f"ALTER TABLE {table.name} DROP COLUMN {column}"))
    connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def _schema_of(revision: str, path: Path) -> tuple[dict[str, set[str]], set[str | None]]:
    """The columns of each table, and the indexes, of a database that the migrations up to the revision made."""
    engine = writing_engine(path, foreign_keys="OFF")
    with engine.connect() as connection:
        config = upgrade.alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        older = inspect(connection)
        columns = {name: {column["name"] for column in older.get_columns(name)} for name in older.get_table_names()}
        indexes = {index["name"] for name in columns for index in older.get_indexes(name)}
    engine.dispose()
    return columns, indexes
