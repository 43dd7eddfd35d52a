"""A chat session may be with drafted instructions in place of the agent's own."""

from evaldesk.store.migrations.tables import add_columns

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    add_columns("session", "draft text", default="{}")
