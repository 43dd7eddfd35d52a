"""The cases of the earlier run that a run is compared with."""

from evaldesk.store.migrations.tables import create_table

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    create_table("run_baseline", "run_id codec int\n data bytes", key="run_id", of=["run"])
