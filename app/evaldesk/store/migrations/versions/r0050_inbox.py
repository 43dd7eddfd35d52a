"""The inbox: received spans, their conversations, and draws of them."""

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, create_index, create_table

revision = "0050"
down_revision = "0049"


def upgrade() -> None:
    create_table(
        "inbox_source",
        """
        name str
        first_at last_at time
        n_spans n_refused n_removed int
        """,
        key="name",
        options=BY_KEY,
    )
    create_table(
        "inbox_spans",
        """
        id int
        source trace_id str
        n_spans int
        received_at time
        codec int
        data bytes
        """,
        options=NUMBERED,
    )
    create_index("inbox_spans", "source trace_id")
    create_table(
        "inbox_trace",
        """
        source trace_id str
        group_id n_spans int
        last_at time
        stage str
        """,
        key="source trace_id",
        options=BY_KEY,
    )
    create_index("inbox_trace", "group_id")
    create_index("inbox_trace", "stage last_at")
    create_table(
        "inbox_session",
        """
        source service session str
        group_id int
        """,
        key="source service session",
        options=BY_KEY,
    )
    create_index("inbox_session", "group_id")
    create_table(
        "conversation",
        """
        id group_id int
        source service name agent release str
        began_at ended_at last_at time
        duration_ms float
        n_turns n_calls n_spans n_left_out n_bytes tokens int
        cost float?
        has_error bool
        error first_words tools tags text
        user_hash str
        feedback float?
        twin_group state ending str
        is_whole is_eval bool
        """,
        options=NUMBERED,
    )
    for key in (
        "is_eval began_at id",
        "is_eval has_error began_at",
        "is_eval feedback began_at",
        "is_eval release began_at",
        "state began_at",
        "ending last_at",
        "group_id",
        "twin_group",
    ):
        create_index("conversation", key)
    create_table(
        "conversation_content",
        """
        conversation_id codec int
        data bytes
        """,
        key="conversation_id",
        of=["conversation"],
    )
    create_table(
        "conversation_mark",
        """
        kind value str
        conversation_id int
        """,
        key="kind value conversation_id",
        of=["conversation"],
        options=BY_KEY,
    )
    create_index("conversation_mark", "conversation_id")
    create_table(
        "conversation_label",
        """
        conversation_id int
        labeller verdict str
        note text
        labelled_at time
        """,
        key="conversation_id labeller",
        of=["conversation"],
        options=BY_KEY,
    )
    create_table(
        "conversation_score",
        """
        conversation_id int
        metric str
        value float?
        passed bool?
        reason text
        stratum str
        scored_at time
        """,
        key="conversation_id metric",
        of=["conversation"],
        options=BY_KEY,
    )
    create_index("conversation_score", "scored_at conversation_id")
    create_table(
        "inbox_draw",
        """
        id int
        filter strata text
        seed int
        author str
        drawn_at time
        """,
        options=NUMBERED,
    )
    create_table(
        "inbox_draw_item",
        """
        inbox_draw_id place conversation_id int
        stratum str
        """,
        key="inbox_draw_id place",
        of=["inbox_draw", "conversation"],
        options=BY_KEY,
    )
    create_index("inbox_draw_item", "conversation_id")
