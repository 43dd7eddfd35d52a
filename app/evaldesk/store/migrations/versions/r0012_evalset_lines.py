"""The list facts of eval set files, kept until a file changes."""

from evaldesk.store.migrations.tables import BY_KEY, create_table

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    create_table(
        "evalset_line",
        """
        place stamp str
        read_at time
        line text
        """,
        key="place",
        options=BY_KEY,
    )
