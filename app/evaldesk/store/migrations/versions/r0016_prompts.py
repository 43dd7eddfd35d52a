"""The model calls of trials as they were sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0012"
branch_labels = None
depends_on = None

_KEY = ("run_id", "case_index", "trial_index")


def upgrade() -> None:
    op.create_table(
        "trial_prompts",
        *(sa.Column(name, sa.Integer(), nullable=False) for name in (*_KEY, "attempt", "n_calls", "codec")),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            [*_KEY], [f"trial.{name}" for name in _KEY], name="fk_trial_prompts_trial", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(*_KEY, "attempt", name="pk_trial_prompts"),
    )
