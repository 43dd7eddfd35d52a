"""Where trials are played, and how many were played again because their worker or host was lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("places", sa.Text(), nullable=False, server_default=""))
    op.add_column("run", sa.Column("n_played_again", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("trial", sa.Column("place", sa.String(), nullable=True))
