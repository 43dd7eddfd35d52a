"""Who started a run or a session and on which machine, and the leases of turns and imports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("run", "session"):
        op.add_column(table, sa.Column("started_by", sa.String(), nullable=False, server_default=""))
    op.add_column("run", sa.Column("started_on", sa.String(), nullable=False, server_default=""))
    for table in ("open_turn", "import_record"):
        op.add_column(table, sa.Column("leased_until", sa.Float(), nullable=True))
    op.add_column("open_turn", sa.Column("is_stopping", sa.Boolean(), nullable=False, server_default=sa.false()))
