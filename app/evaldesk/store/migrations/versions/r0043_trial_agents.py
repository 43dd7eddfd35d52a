"""The actions of each agent in trials of trees of agents."""

from evaldesk.store.migrations.tables import BY_KEY, OF_TRIAL, create_table

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    create_table(
        "trial_agent",
        """
        run_id case_index trial_index position int
        name parent tool str
        depth n_entries n_calls n_errors n_model_calls int
        tokens bigint
        cost float?
        duration_ms float
        """,
        key=f"{OF_TRIAL} position",
        of=["trial"],
        options=BY_KEY,
    )
