"""Proposals of coding agents, and the edits of cases with their authors."""

from evaldesk.store.migrations.tables import NUMBERED, create_index, create_table

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    create_table(
        "proposal",
        """
        id int
        kind client status digest evalset_id case_id str
        played_in case_index trial_index int?
        before after why text
        n_times int
        made_at time
        decided_at time?
        decided_by undo str
        """,
        options=NUMBERED,
    )
    create_index("proposal", "status evalset_id")
    create_index("proposal", "digest")
    create_table(
        "case_edit",
        """
        id int
        evalset_id case_id version author str
        edited_at time
        """,
        options=NUMBERED,
    )
    create_index("case_edit", "evalset_id case_id")
