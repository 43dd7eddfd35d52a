"""Searches for the decisive turns of failed trials."""

from evaldesk.store.migrations.tables import NUMBERED, create_index, create_table

revision = "0049"
down_revision = "0048"


def upgrade() -> None:
    create_table(
        "blame",
        """
        id batch_id int
        run_id case_index trial_index int
        status str
        reason plan answer text
        leased_until float?
        created_at time
        """,
        of=["trial"],
        options=NUMBERED,
    )
    create_index("blame", "run_id case_index trial_index")
    create_index("blame", "batch_id")
