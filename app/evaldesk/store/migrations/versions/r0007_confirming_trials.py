"""The fresh trials of cases that seem to have regressed."""

from evaldesk.store.migrations.tables import add_columns

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    add_columns("run", "n_confirming n_confirming_todo n_confirming_errored int", default="0")
