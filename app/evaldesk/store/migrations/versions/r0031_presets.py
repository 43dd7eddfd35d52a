"""Presets of the form of a run."""

from evaldesk.store.migrations.tables import NUMBERED, create_index, create_table

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    create_table(
        "preset",
        """
        id int
        agent_id name folded str
        fields text
        saved_at time
        """,
        options=NUMBERED,
    )
    create_index("preset", "agent_id folded")
