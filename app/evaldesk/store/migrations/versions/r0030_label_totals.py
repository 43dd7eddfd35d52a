"""Totals of labels, counted from those that are there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "label_total",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("labeller", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("is_disagreement", sa.Boolean(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_label_total_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "labeller", "verdict", "is_disagreement", name="pk_label_total"),
        sqlite_with_rowid=False,
    )
    op.execute(
        """
        INSERT INTO label_total (run_id, labeller, verdict, is_disagreement, n)
        SELECT run_id, labeller, verdict, is_disagreement, count(*)
        FROM (
            SELECT label.run_id, label.labeller, coalesce(label.verdict, '') AS verdict,
                label.turn = -1 AND coalesce(label.verdict, '') IN ('passed', 'failed')
                AND coalesce(trial.verdict, '') IN ('passed', 'failed') AND label.verdict != trial.verdict
                AS is_disagreement
            FROM label CROSS JOIN trial
            WHERE trial.run_id = label.run_id AND trial.case_index = label.case_index
                AND trial.trial_index = label.trial_index
        ) AS labels
        GROUP BY run_id, labeller, verdict, is_disagreement
        """
    )
