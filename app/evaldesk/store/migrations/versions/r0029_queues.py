"""Review queues, their trials, and the steps of labelling to undo."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"
branch_labels = None
depends_on = None

_TRIAL = ["run_id", "case_index", "trial_index"]


def _of_queue(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["queue_id"], ["queue.id"], name=f"fk_{table}_queue", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "queue",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("strata", sa.Text(), nullable=False),
        sa.Column("is_blind", sa.Boolean(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_queue"),
        sqlite_autoincrement=True,
    )
    parents = [f"trial.{name}" for name in _TRIAL]
    op.create_table(
        "queue_item",
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("labelled_run", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        _of_queue("queue_item"),
        sa.ForeignKeyConstraint(_TRIAL, parents, name="fk_queue_item_trial", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("queue_id", "place", name="pk_queue_item"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_queue_item_run_id_case_index_trial_index", "queue_item", _TRIAL, unique=False)
    op.create_table(
        "label_step",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("queue_id", sa.Integer(), nullable=False),
        sa.Column("labeller", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("is_blind", sa.Boolean(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_undone", sa.Boolean(), nullable=False),
        _of_queue("label_step"),
        sa.PrimaryKeyConstraint("id", name="pk_label_step"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_label_step_queue_id_labeller_id", "label_step", ["queue_id", "labeller", "id"], unique=False)
