"""The places of trials, and the number of trials played again because their worker or host was lost."""

from evaldesk.store.migrations.tables import add_columns

revision = "0020"
down_revision = "0016"


def upgrade() -> None:
    add_columns("run", "places text", default="")
    add_columns("run", "n_played_again int", default="0")
    add_columns("trial", "place str?")
