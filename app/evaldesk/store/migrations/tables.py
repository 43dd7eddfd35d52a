"""The words of migrations: columns, keys and indexes, with the names that the declared tables give them.

Migrations import nothing else of the app, which changes after them: decision 398.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

KINDS: dict[str, Any] = {
    "int": sa.Integer(),
    "bigint": sa.BigInteger(),
    "float": sa.Float(),
    "bool": sa.Boolean(),
    "str": sa.String(),
    "text": sa.Text(),
    "time": sa.DateTime(timezone=True),
    "bytes": sa.LargeBinary(),
}
OF_TRIAL = "run_id case_index trial_index"
NUMBERED = {"sqlite_autoincrement": True}
BY_KEY = {"sqlite_with_rowid": False}
"""The rows are stored by their key."""


def columns(lines: str, default: Any = None) -> list[sa.Column[Any]]:
    """A column for each name; each line has names and their kind, `time?` where they may be null."""
    table_columns = []
    for line in filter(str.strip, lines.splitlines()):
        *names, kind = line.split()
        of_kind, is_nullable = KINDS[kind.removesuffix("?")], kind.endswith("?")
        table_columns += [sa.Column(name, of_kind, nullable=is_nullable, server_default=default) for name in names]
    return table_columns


def create_table(
    name: str, lines: str, *, key: str = "id", of: Sequence[str] = (), options: Mapping[str, bool] | None = None
) -> None:
    """Create a table, whose rows go with those of the tables `of` to which they belong."""
    parents = []
    for parent in of:
        own = KEYS.get(parent, f"{parent}_id").split()
        parent_columns = [f"{parent}.{column}" for column in (own if parent in KEYS else ["id"])]
        parents.append(sa.ForeignKeyConstraint(own, parent_columns, name=f"fk_{name}_{parent}", ondelete="CASCADE"))
    op.create_table(
        name, *columns(lines), *parents, sa.PrimaryKeyConstraint(*key.split(), name=f"pk_{name}"), **(options or {})
    )


KEYS = {"run_case": "run_id case_index", "trial": OF_TRIAL, "open_turn": "session_id"}
"""The keys of the tables whose rows are named by more than a number of their own."""


def create_index(table: str, key: str) -> None:
    """Index a table by some columns."""
    op.create_index(f"ix_{table}_{'_'.join(key.split())}", table, key.split(), unique=False)


def add_columns(table: str, lines: str, default: Any = None) -> None:
    """Add columns; rows that are there get the default."""
    for column in columns(lines, default):
        op.add_column(table, column)
