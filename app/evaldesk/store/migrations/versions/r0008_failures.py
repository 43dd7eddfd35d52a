"""Findings on trials, the modes they belong to, the trials that were read, and the steps to undo."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TRIAL = ["run_id", "case_index", "trial_index"]


def _of_trial(table: str) -> sa.ForeignKeyConstraint:
    parents = [f"trial.{name}" for name in _TRIAL]
    return sa.ForeignKeyConstraint(_TRIAL, parents, name=f"fk_{table}_trial", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "mode",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("folded", sa.String(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("example_yes", sa.Text(), nullable=False),
        sa.Column("example_no", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("merged_into", sa.Integer(), nullable=True),
        sa.Column("fixed_in", sa.Integer(), nullable=True),
        sa.Column("reopened_in", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_mode"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_mode_folded", "mode", ["folded"], unique=False)
    op.create_table(
        "finding",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("event", sa.Integer(), nullable=True),
        sa.Column("start", sa.Integer(), nullable=True),
        sa.Column("end", sa.Integer(), nullable=True),
        sa.Column("quote", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("mode_id", sa.Integer(), nullable=True),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        _of_trial("finding"),
        sa.PrimaryKeyConstraint("id", name="pk_finding"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_finding_run_id_case_index_trial_index", "finding", _TRIAL, unique=False)
    op.create_index("ix_finding_mode_id_run_id", "finding", ["mode_id", "run_id"], unique=False)
    op.create_table(
        "reading",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("reader", sa.String(), nullable=False),
        sa.Column("is_clear", sa.Boolean(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        _of_trial("reading"),
        sa.PrimaryKeyConstraint(*_TRIAL, "reader", name="pk_reading"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "codebook_step",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_undone", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_codebook_step"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_codebook_step_author_id", "codebook_step", ["author", "id"], unique=False)
