"""The lease of the process that plays a run."""

from evaldesk.store.migrations.tables import add_columns

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    add_columns("run", "lease int", default="0")
    add_columns("run", "leased_until float?")
