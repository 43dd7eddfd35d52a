"""Imports while they are stored."""

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, create_index, create_table

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    create_table(
        "import_record",
        """
        id int
        status stage source owner set_id set_path set_version str
        n_total n_done int
        reason text
        created_at time
        finished_at time?
        """,
        options=NUMBERED,
    )
    create_index("import_record", "status")
    create_table("import_run", "run_id import_id int", key="run_id", of=["run"], options=BY_KEY)
    create_index("import_run", "import_id run_id")
