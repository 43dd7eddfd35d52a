"""Totals of runs over their cases; those of earlier runs are counted afterwards, in steps."""

import sqlalchemy as sa
from alembic import op

from evaldesk.store.migrations.tables import BY_KEY, add_columns, create_table

revision = "0010"
down_revision = "0009"


_VERDICTS = "n_passed n_failed n_errored n_unscored"


def upgrade() -> None:
    add_columns("run", "n_totalled int", default="0")
    add_columns("run_case", "worst float?")
    op.create_index("ix_run_case_worst", "run_case", ["run_id", "worst", sa.text("n_errored DESC"), "case_index"])
    create_table(
        "run_metric",
        """
        run_id int
        metric str
        n n_passed n_cases int
        low high float
        sums text
        kinds text?
        """,
        key="run_id metric",
        of=["run"],
        options=BY_KEY,
    )
    create_table(
        "run_outcome", f"run_id {_VERDICTS} n_cases int", key=f"run_id {_VERDICTS}", of=["run"], options=BY_KEY
    )
