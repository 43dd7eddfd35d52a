"""The class of a run: runs of one class are the history of their cases."""

import sqlalchemy as sa
from alembic import op

from evaldesk.errors import EvaldeskError
from evaldesk.model import RunConfig
from evaldesk.store.migrations.tables import add_columns, create_index
from evaldesk.store.runs.histories import history_class
from evaldesk.wire import from_json

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    add_columns("run", "history_class str", default="")
    create_index("run", "history_class id")
    rows = op.get_bind().execute(sa.text("SELECT id, config FROM run")).all()
    updates = [{"id": run_id, "of_class": _class_of(config)} for run_id, config in rows]
    if updates:
        op.get_bind().execute(sa.text("UPDATE run SET history_class = :of_class WHERE id = :id"), updates)


def _class_of(config: str) -> str:
    try:
        return history_class(from_json(config, RunConfig))
    except (EvaldeskError, ValueError):  # a configuration that cannot be read any more has no history
        return ""
