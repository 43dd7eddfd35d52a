"""How the models of chats were asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "turn_prompts",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("turn_index", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name="fk_turn_prompts_session", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "turn_index", name="pk_turn_prompts"),
    )
