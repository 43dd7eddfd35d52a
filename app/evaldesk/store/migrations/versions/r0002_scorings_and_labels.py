"""Runs that score stored trials again, and labels of trials."""

from evaldesk.store.migrations.tables import BY_KEY, OF_TRIAL, create_index, create_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_table("run_source", "run_id source_id int", key="run_id", of=["run"], options=BY_KEY)
    create_index("run_source", "source_id run_id")
    create_table(
        "label",
        """
        run_id case_index trial_index turn int
        labeller str
        verdict str?
        note text
        labelled_at time
        """,
        key=f"{OF_TRIAL} turn labeller",
        of=["trial"],
        options=BY_KEY,
    )
    create_index("label", "labelled_at")
