"""The lease of the process that plays a run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("lease", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("leased_until", sa.Float(), nullable=True))
