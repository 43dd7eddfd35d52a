"""The starter and machine of runs and sessions, and the leases of turns and imports."""

import sqlalchemy as sa

from evaldesk.store.migrations.tables import add_columns

revision = "0022"
down_revision = "0020"


def upgrade() -> None:
    for table in ("run", "session"):
        add_columns(table, "started_by str", default="")
    add_columns("run", "started_on str", default="")
    for table in ("open_turn", "import_record"):
        add_columns(table, "leased_until float?")
    add_columns("open_turn", "is_stopping bool", default=sa.false())
