"""Cases of a run may have different numbers of trials: the fewest, and those of all cases."""

from alembic import op

from evaldesk.store.migrations.tables import add_columns

revision = "0025"
down_revision = "0022"


def upgrade() -> None:
    add_columns("run", "n_least n_trials int", default="0")
    op.execute("UPDATE run SET n_least = n, n_trials = n * n_cases")
