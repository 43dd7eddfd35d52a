"""Imports while they are stored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "import_record",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("set_id", sa.String(), nullable=False),
        sa.Column("set_path", sa.String(), nullable=False),
        sa.Column("set_version", sa.String(), nullable=False),
        sa.Column("n_total", sa.Integer(), nullable=False),
        sa.Column("n_done", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_import_record"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_import_record_status", "import_record", ["status"], unique=False)
    op.create_table(
        "import_run",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("import_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_import_run_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_import_run"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_import_run_import_id_run_id", "import_run", ["import_id", "run_id"], unique=False)
