"""The cases of the earlier run that a run is compared with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_baseline",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_baseline_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_baseline"),
    )
