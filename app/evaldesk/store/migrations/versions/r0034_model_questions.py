"""What questions to a model about failures cost, and the kinds that it would merge."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_question",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("n_trials", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_model_question_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_model_question"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_model_question_run_id", "model_question", ["run_id"], unique=False)
    op.create_table(
        "proposed_merge",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("mode_id", sa.Integer(), nullable=False),
        sa.Column("into_id", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("is_rejected", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proposed_merge"),
        sqlite_autoincrement=True,
    )
