"""How the models of chats were asked."""

from evaldesk.store.migrations.tables import create_table

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    create_table(
        "turn_prompts",
        """
        session_id str
        turn_index codec int
        data bytes
        """,
        key="session_id turn_index",
        of=["session"],
    )
