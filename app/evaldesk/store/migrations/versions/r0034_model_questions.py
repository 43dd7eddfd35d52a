"""The cost of questions to a model about failures, and its proposed merges."""

from evaldesk.store.migrations.tables import NUMBERED, create_index, create_table

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    create_table(
        "model_question",
        """
        id run_id int
        model str
        n_trials tokens int
        cost float?
        asked_at time
        """,
        of=["run"],
        options=NUMBERED,
    )
    create_index("model_question", "run_id")
    create_table(
        "proposed_merge",
        """
        id mode_id into_id int
        reason text
        model str
        is_rejected bool
        """,
        options=NUMBERED,
    )
