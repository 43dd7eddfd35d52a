"""The bytes of media, once for all runs and sessions, and the media of an open turn."""

from evaldesk.store.migrations.tables import BY_KEY, add_columns, create_index, create_table

revision = "0027"
down_revision = "0025"


def upgrade() -> None:
    create_table(
        "media",
        """
        digest str
        kept_at time
        data bytes
        """,
        key="digest",
    )
    for name, kind in (("run", "int"), ("session", "str")):
        lines = f"{name}_id {kind}\n digest str"
        create_table(f"{name}_media", lines, key=f"{name}_id digest", of=[name], options=BY_KEY)
        create_index(f"{name}_media", "digest")
    add_columns("open_turn", "media text", default="[]")
