"""Cases of a run may have different numbers of trials: the fewest, and those of all cases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("n_least", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("n_trials", sa.Integer(), nullable=False, server_default="0"))
    op.execute("UPDATE run SET n_least = n, n_trials = n * n_cases")
