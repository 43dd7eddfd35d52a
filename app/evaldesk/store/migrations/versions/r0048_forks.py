"""Forks of trials: the point in the parent, and the pinned turns before it."""

from evaldesk.store.migrations.tables import BY_KEY, add_columns, create_index, create_table

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    add_columns("run", "parent_run parent_case parent_trial parent_turn parent_call int?\nfork_fingerprint str?")
    create_index("run", "parent_run parent_case parent_trial")
    create_index("run", "fork_fingerprint")
    create_table("pinned_turn", "digest str\ncodec int\ndata bytes", key="digest", options=BY_KEY)
    create_table(
        "run_pinned_turn",
        """
        run_id case_index turn_index int
        digest str
        """,
        key="run_id case_index turn_index",
        of=["run_case"],
        options=BY_KEY,
    )
    create_index("run_pinned_turn", "digest")
