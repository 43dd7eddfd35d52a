"""Experiments, whose variants are runs."""

from evaldesk.store.migrations.tables import NUMBERED, add_columns, create_index, create_table

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    create_table(
        "experiment",
        """
        id int
        name str
        plan dropped analysed analysis text
        created_at time
        """,
        options=NUMBERED,
    )
    add_columns("run", "experiment_id variant_index int?")
    create_index("run", "experiment_id variant_index")
