"""${message}"""

from alembic import op

from evaldesk.store.migrations.tables import add_columns, create_index, create_table
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
