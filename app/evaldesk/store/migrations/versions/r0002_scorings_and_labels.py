"""Runs that score stored trials again, and labels of trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_source",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_source_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_source"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_run_source_source_id_run_id", "run_source", ["source_id", "run_id"], unique=False)
    op.create_table(
        "label",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("labeller", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("labelled_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index", "trial_index"],
            ["trial.run_id", "trial.case_index", "trial.trial_index"],
            name="fk_label_trial",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_index", "trial_index", "turn", "labeller", name="pk_label"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_label_labelled_at", "label", ["labelled_at"], unique=False)
