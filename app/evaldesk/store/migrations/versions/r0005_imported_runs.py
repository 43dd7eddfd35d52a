"""The content of imported runs, to find a run that was imported before."""

from evaldesk.store.migrations.tables import BY_KEY, create_index, create_table

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    create_table("imported_run", "run_id int\n digest str", key="run_id", of=["run"], options=BY_KEY)
    create_index("imported_run", "digest run_id")
