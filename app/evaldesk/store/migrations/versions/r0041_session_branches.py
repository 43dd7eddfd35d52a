"""A chat session may be a branch of another one."""

from evaldesk.store.migrations.tables import add_columns

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    add_columns("session", "branch_of str", default="")
    add_columns("session", "branch_turn int", default="0")
