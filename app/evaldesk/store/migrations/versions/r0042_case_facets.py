"""Facets of cases, first divergences of trials, and named views of the table of cases."""

import sqlalchemy as sa
from alembic import op

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, add_columns, create_index, create_table

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    add_columns("run", "n_faceted int", default="0")
    add_columns("trial", "divergence text?")
    is_known = sa.text("divergence IS NOT NULL")
    op.create_index(
        "ix_trial_divergence", "trial", ["run_id", "divergence"], sqlite_where=is_known, postgresql_where=is_known
    )
    create_table(
        "case_facet",
        """
        run_id int
        kind value str
        case_index int
        """,
        key="run_id kind value case_index",
        of=["run"],
        options=BY_KEY,
    )
    create_table(
        "table_view",
        """
        id int
        evalset_id name folded str
        address text
        saved_at time
        """,
        options=NUMBERED,
    )
    create_index("table_view", "evalset_id folded")
