"""Totals of labels, counted from the existing labels."""

from alembic import op

from evaldesk.store.migrations.tables import BY_KEY, create_table

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    create_table(
        "label_total",
        """
        run_id int
        labeller verdict str
        is_disagreement bool
        n int
        """,
        key="run_id labeller verdict is_disagreement",
        of=["run"],
        options=BY_KEY,
    )
    op.execute(
        """
        INSERT INTO label_total (run_id, labeller, verdict, is_disagreement, n)
        SELECT run_id, labeller, verdict, is_disagreement, count(*)
        FROM (
            SELECT label.run_id, label.labeller, coalesce(label.verdict, '') AS verdict,
                label.turn = -1 AND coalesce(label.verdict, '') IN ('passed', 'failed')
                AND coalesce(trial.verdict, '') IN ('passed', 'failed') AND label.verdict != trial.verdict
                AS is_disagreement
            FROM label CROSS JOIN trial
            WHERE trial.run_id = label.run_id AND trial.case_index = label.case_index
                AND trial.trial_index = label.trial_index
        ) AS labels
        GROUP BY run_id, labeller, verdict, is_disagreement
        """
    )
