"""The content of imported runs, to find a run that was imported before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "imported_run",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_imported_run_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_imported_run"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_imported_run_digest_run_id", "imported_run", ["digest", "run_id"], unique=False)
