"""A run counts the time in which its players started apart from the time of its trials."""

from evaldesk.store.migrations.tables import add_columns

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    add_columns("run", "start_ms float", default="0")
