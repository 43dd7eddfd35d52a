"""When a run stops before its last trial, and why it did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("stop_rule", sa.String(), nullable=False, server_default=""))
    op.add_column("run", sa.Column("stop", sa.Text(), nullable=True))
