"""When a run stops before its last trial, and why it did."""

from evaldesk.store.migrations.tables import add_columns

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    add_columns("run", "stop_rule str", default="")
    add_columns("run", "stop text?")
