"""The fresh trials of cases that seem to have regressed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("n_confirming", "n_confirming_todo", "n_confirming_errored"):
        op.add_column("run", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
