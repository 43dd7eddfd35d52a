"""The pooled verdicts of cases: why the trials of a case together fail, empty where they pass."""

from evaldesk.store.migrations.tables import add_columns

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    add_columns("run_case", "pooled_failure text?")
