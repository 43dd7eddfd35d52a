"""The index by which the history of some cases is found, without a look at the other cases of the same runs."""

from evaldesk.store.migrations.tables import create_index

revision = "0053"
down_revision = "0052"


def upgrade() -> None:
    create_index("run_case", "digest run_id")
