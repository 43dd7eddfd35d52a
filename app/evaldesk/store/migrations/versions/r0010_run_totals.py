"""Totals of runs over their cases; those of earlier runs are counted afterwards, in steps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_VERDICTS = ("n_passed", "n_failed", "n_errored", "n_unscored")


def upgrade() -> None:
    op.add_column("run", sa.Column("n_totalled", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run_case", sa.Column("worst", sa.Float(), nullable=True))
    op.create_index("ix_run_case_worst", "run_case", ["run_id", "worst", sa.text("n_errored DESC"), "case_index"])
    op.create_table(
        "run_metric",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("n_passed", sa.Integer(), nullable=False),
        sa.Column("n_cases", sa.Integer(), nullable=False),
        sa.Column("low", sa.Float(), nullable=False),
        sa.Column("high", sa.Float(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_metric_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "metric", name="pk_run_metric"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_outcome",
        sa.Column("run_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in _VERDICTS),
        sa.Column("n_cases", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_outcome_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", *_VERDICTS, name="pk_run_outcome"),
        sqlite_with_rowid=False,
    )
