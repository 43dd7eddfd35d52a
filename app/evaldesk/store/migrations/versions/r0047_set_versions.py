"""Versions of eval sets, the contents of their cases, and the version that a run played."""

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, add_columns, create_index, create_table

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    add_columns("run", "set_version str", default="")
    create_table(
        "set_version",
        """
        id int
        evalset_id version str
        noted_at time
        author origin str
        note text
        revision revision_author str
        n_cases n_added n_changed n_removed n_renamed int
        codec int
        data bytes
        """,
        options=NUMBERED,
    )
    create_index("set_version", "evalset_id id")
    create_table("case_content", "digest str\ncodec int\ndata bytes", key="digest", options=BY_KEY)
