"""Runs, cases, trials, scores, transcripts and chat sessions."""

from evaldesk.store.migrations.tables import BY_KEY, NUMBERED, OF_TRIAL, create_index, create_table

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_runs()
    _create_cases()
    _create_trials()
    _create_sessions()


def _create_runs() -> None:
    create_table(
        "run",
        """
        id int
        status agent_id evalset_id str
        n n_cases n_passed n_failed n_errored n_unscored n_duplicates n_unpriced int
        tokens_in tokens_out bigint
        cost duration_ms active_ms float
        ticked_at time?
        created_at time
        started_at finished_at deleted_at time?
        driver str
        reason note config text
        """,
        options=NUMBERED,
    )
    for key in ("agent_id id", "evalset_id id", "status id"):
        create_index("run", key)


def _create_cases() -> None:
    create_table(
        "run_case",
        """
        run_id case_index int
        case_id digest str
        strip text
        n_passed n_failed n_errored n_unscored n_unpriced int
        tokens_in tokens_out bigint
        cost duration_ms float
        """,
        key="run_id case_index",
        of=["run"],
        options=BY_KEY,
    )
    create_table(
        "case_snapshot",
        """
        run_id case_index codec int
        data bytes
        """,
        key="run_id case_index",
        of=["run_case"],
    )
    create_table(
        "last_run",
        """
        evalset_id case_id str
        run_id case_index int
        """,
        key="evalset_id case_id",
        of=["run_case"],
        options=BY_KEY,
    )
    create_index("last_run", "run_id case_index")
    create_table(
        "error_group",
        """
        run_id int
        kind message str
        n case_index trial_index int
        example text
        """,
        key="run_id kind message",
        of=["run"],
        options=BY_KEY,
    )


def _create_trials() -> None:
    create_table(
        "trial",
        """
        run_id case_index trial_index int
        status str
        attempt int
        verdict str?
        n_calls int
        tokens_in tokens_out bigint
        cost float?
        duration_ms float
        error_kind str?
        error_message text?
        recorded_at time?
        """,
        key=OF_TRIAL,
        of=["run_case"],
        options=BY_KEY,
    )
    create_table(
        "score",
        """
        run_id case_index trial_index int
        metric str
        value float
        passed bool?
        """,
        key=f"{OF_TRIAL} metric",
        of=["trial"],
        options=BY_KEY,
    )
    create_table(
        "transcript",
        """
        run_id case_index trial_index attempt codec int
        data bytes
        """,
        key=f"{OF_TRIAL} attempt",
        of=["trial"],
    )
    create_table(
        "case_metric",
        """
        run_id case_index int
        metric str
        n n_passed int
        total total_squares low high float
        """,
        key="run_id case_index metric",
        of=["run_case"],
        options=BY_KEY,
    )


def _create_sessions() -> None:
    create_table(
        "session",
        """
        id agent_id title str
        n_turns int
        ended_in_error bool
        created_at updated_at time
        deleted_at time?
        initial_state state text
        """,
    )
    for key in ("agent_id updated_at", "updated_at"):
        create_index("session", key)
    create_table(
        "session_turn",
        """
        session_id str
        turn_index codec int
        data bytes
        """,
        key="session_id turn_index",
        of=["session"],
    )
    create_table(
        "session_case",
        """
        session_id evalset_id case_id str
        added_at time
        """,
        key="session_id evalset_id case_id",
        of=["session"],
        options=BY_KEY,
    )
