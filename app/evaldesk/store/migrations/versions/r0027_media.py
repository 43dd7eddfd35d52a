"""The bytes of media, once for all runs and sessions, and the media of an open turn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "media",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_media"),
    )
    for name, kind in (("run", sa.Integer()), ("session", sa.String())):
        own = f"{name}_id"
        op.create_table(
            f"{name}_media",
            sa.Column(own, kind, nullable=False),
            sa.Column("digest", sa.String(), nullable=False),
            sa.ForeignKeyConstraint([own], [f"{name}.id"], name=f"fk_{name}_media_{name}", ondelete="CASCADE"),
            sa.PrimaryKeyConstraint(own, "digest", name=f"pk_{name}_media"),
            sqlite_with_rowid=False,
        )
        op.create_index(f"ix_{name}_media_digest", f"{name}_media", ["digest"])
    op.add_column("open_turn", sa.Column("media", sa.Text(), nullable=False, server_default="[]"))
