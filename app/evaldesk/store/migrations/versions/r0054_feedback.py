"""Conversations with feedback are found in their order of time."""

import sqlalchemy as sa
from alembic import op

revision = "0054"
down_revision = "0053"


def upgrade() -> None:
    has_feedback = sa.text("feedback IS NOT NULL")
    op.create_index(
        "ix_conversation_feedback",
        "conversation",
        ["is_eval", "began_at", "id", "feedback"],
        sqlite_where=has_feedback,
        postgresql_where=has_feedback,
    )
    op.drop_index("ix_conversation_is_eval_feedback_began_at", "conversation")
