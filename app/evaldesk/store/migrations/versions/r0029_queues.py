"""Review queues, their trials, and the steps of labelling to undo."""

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, OF_TRIAL, create_index, create_table

revision = "0029"
down_revision = "0027"


def upgrade() -> None:
    create_table(
        "queue",
        """
        id int
        strata text
        is_blind bool
        author str
        created_at time
        """,
        options=NUMBERED,
    )
    create_table(
        "queue_item",
        """
        queue_id place run_id case_index trial_index labelled_run int
        kind str
        """,
        key="queue_id place",
        of=["queue", "trial"],
        options=BY_KEY,
    )
    create_index("queue_item", OF_TRIAL)
    create_table(
        "label_step",
        """
        id queue_id int
        labeller str
        n int
        is_blind bool
        before text
        taken_at time
        is_undone bool
        """,
        of=["queue"],
        options=NUMBERED,
    )
    create_index("label_step", "queue_id labeller id")
