"""Answers in words to proposals of coding agents, and the content of those that a person edited before accepting."""

from evaldesk.store.migrations.tables import add_columns

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    add_columns("proposal", "reply edited text", default="")
