"""The script of Alembic: the migrations, each in a transaction of its own, on the given connection."""

from __future__ import annotations

from typing import Any

from alembic import context

from evaldesk.errors import WorkspaceError
from evaldesk.store.tables import METADATA


def _after_migration(ctx: Any, step: Any, heads: Any, run_args: Any) -> None:
    if ctx.connection.dialect.name == "sqlite" and ctx.connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise WorkspaceError("the migration would leave rows that belong to nothing; the database is as it was")


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transaction_per_migration=True,
    transactional_ddl=True,
    render_as_batch=True,
    on_version_apply=_after_migration,
)
with context.begin_transaction():
    context.run_migrations()
