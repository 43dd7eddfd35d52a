"""Indexes that count findings by run and by kind without reading them."""

from alembic import op

revision = "0033"
down_revision = "0032"

_TRIAL = ["case_index", "trial_index"]


def upgrade() -> None:
    op.drop_index("ix_finding_mode_id_run_id", "finding", if_exists=True)
    for columns in (["mode_id", "status", "run_id", *_TRIAL], ["run_id", "status", "author", "mode_id", *_TRIAL]):
        op.create_index(f"ix_finding_{'_'.join(columns)}", "finding", columns, if_not_exists=True)
