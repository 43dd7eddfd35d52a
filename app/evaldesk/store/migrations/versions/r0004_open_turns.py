"""Turns of chat sessions while they are played."""

from evaldesk.store.migrations.tables import create_table

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    create_table(
        "open_turn",
        """
        session_id str
        turn_index int
        owner str
        message text
        model asked_by str
        started_at time
        """,
        key="session_id",
        of=["session"],
    )
    create_table(
        "open_turn_events",
        """
        session_id str
        batch_index codec int
        data bytes
        """,
        key="session_id batch_index",
        of=["open_turn"],
    )
