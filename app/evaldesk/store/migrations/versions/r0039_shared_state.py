"""A run keeps what its trials were seen to share with others of their process."""

from evaldesk.store.migrations.tables import add_columns

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    add_columns("run", "shared_state text", default="")
