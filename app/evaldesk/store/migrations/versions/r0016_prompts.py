"""The model calls of trials as they were sent."""

from evaldesk.store.migrations.tables import OF_TRIAL, create_table

revision = "0016"
down_revision = "0012"


def upgrade() -> None:
    create_table(
        "trial_prompts",
        """
        run_id case_index trial_index attempt n_calls codec int
        data bytes
        """,
        key=f"{OF_TRIAL} attempt",
        of=["trial"],
    )
