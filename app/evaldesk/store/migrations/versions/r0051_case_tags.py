"""Tags of cases that were changed at the desk."""

from evaldesk.store.migrations.tables import BY_KEY, create_table

revision = "0051"
down_revision = "0050"


def upgrade() -> None:
    create_table(
        "case_tag",
        """
        evalset_id case_id tag str
        is_added is_in_file bool
        author str
        changed_at time
        """,
        key="evalset_id case_id tag",
        options=BY_KEY,
    )
