"""Turns of chat sessions while they are played."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "open_turn",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("turn_index", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("asked_by", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name="fk_open_turn_session", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", name="pk_open_turn"),
    )
    op.create_table(
        "open_turn_events",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("batch_index", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["open_turn.session_id"], name="fk_open_turn_events_open_turn", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "batch_index", name="pk_open_turn_events"),
    )
