"""Findings on trials, the modes they belong to, the trials that were read, and the steps to undo."""

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, OF_TRIAL, create_index, create_table

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    create_table(
        "mode",
        """
        id int
        name folded str
        definition example_yes example_no text
        created_at time
        retired_at time?
        merged_into fixed_in reopened_in int?
        """,
        options=NUMBERED,
    )
    create_index("mode", "folded")
    create_table(
        "finding",
        """
        id run_id case_index trial_index int
        turn event start end int?
        quote note text
        mode_id int?
        author source status str
        signature text
        created_at time
        """,
        of=["trial"],
        options=NUMBERED,
    )
    create_index("finding", OF_TRIAL)
    create_index("finding", "mode_id run_id")
    create_table(
        "reading",
        """
        run_id case_index trial_index int
        reader str
        is_clear bool
        read_at time
        """,
        key=f"{OF_TRIAL} reader",
        of=["trial"],
        options=BY_KEY,
    )
    create_table(
        "codebook_step",
        """
        id int
        kind str
        words text
        author str
        before text
        taken_at time
        is_undone bool
        """,
        options=NUMBERED,
    )
    create_index("codebook_step", "author id")
