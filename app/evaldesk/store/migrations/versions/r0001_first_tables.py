"""Runs, cases, trials, scores, transcripts and chat sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_runs()
    _create_cases()
    _create_trials()
    _create_sessions()


def _create_runs() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("evalset_id", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("n_cases", sa.Integer(), nullable=False),
        sa.Column("n_passed", sa.Integer(), nullable=False),
        sa.Column("n_failed", sa.Integer(), nullable=False),
        sa.Column("n_errored", sa.Integer(), nullable=False),
        sa.Column("n_unscored", sa.Integer(), nullable=False),
        sa.Column("n_duplicates", sa.Integer(), nullable=False),
        sa.Column("n_unpriced", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.Column("active_ms", sa.Float(), nullable=False),
        sa.Column("ticked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("driver", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_agent_id_id", "run", ["agent_id", "id"], unique=False)
    op.create_index("ix_run_evalset_id_id", "run", ["evalset_id", "id"], unique=False)
    op.create_index("ix_run_status_id", "run", ["status", "id"], unique=False)


def _create_cases() -> None:
    op.create_table(
        "run_case",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("strip", sa.Text(), nullable=False),
        sa.Column("n_passed", sa.Integer(), nullable=False),
        sa.Column("n_failed", sa.Integer(), nullable=False),
        sa.Column("n_errored", sa.Integer(), nullable=False),
        sa.Column("n_unscored", sa.Integer(), nullable=False),
        sa.Column("n_unpriced", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_run_case_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "case_index", name="pk_run_case"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "case_snapshot",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index"],
            ["run_case.run_id", "run_case.case_index"],
            name="fk_case_snapshot_run_case",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_index", name="pk_case_snapshot"),
    )
    op.create_table(
        "last_run",
        sa.Column("evalset_id", sa.String(), nullable=False),
        sa.Column("case_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index"],
            ["run_case.run_id", "run_case.case_index"],
            name="fk_last_run_run_case",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("evalset_id", "case_id", name="pk_last_run"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_last_run_run_id_case_index", "last_run", ["run_id", "case_index"], unique=False)
    op.create_table(
        "error_group",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("example", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_error_group_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "kind", "message", name="pk_error_group"),
        sqlite_with_rowid=False,
    )


def _create_trials() -> None:
    op.create_table(
        "trial",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("n_calls", sa.Integer(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("duration_ms", sa.Float(), nullable=False),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index"],
            ["run_case.run_id", "run_case.case_index"],
            name="fk_trial_run_case",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_index", "trial_index", name="pk_trial"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "score",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index", "trial_index"],
            ["trial.run_id", "trial.case_index", "trial.trial_index"],
            name="fk_score_trial",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_index", "trial_index", "metric", name="pk_score"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "transcript",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("trial_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index", "trial_index"],
            ["trial.run_id", "trial.case_index", "trial.trial_index"],
            name="fk_transcript_trial",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_index", "trial_index", "attempt", name="pk_transcript"),
    )
    op.create_table(
        "case_metric",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_index", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("n_passed", sa.Integer(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.Column("total_squares", sa.Float(), nullable=False),
        sa.Column("low", sa.Float(), nullable=False),
        sa.Column("high", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "case_index"],
            ["run_case.run_id", "run_case.case_index"],
            name="fk_case_metric_run_case",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_index", "metric", name="pk_case_metric"),
        sqlite_with_rowid=False,
    )


def _create_sessions() -> None:
    op.create_table(
        "session",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("n_turns", sa.Integer(), nullable=False),
        sa.Column("ended_in_error", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("initial_state", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_session"),
    )
    op.create_index("ix_session_agent_id_updated_at", "session", ["agent_id", "updated_at"], unique=False)
    op.create_index("ix_session_updated_at", "session", ["updated_at"], unique=False)
    op.create_table(
        "session_turn",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("turn_index", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name="fk_session_turn_session", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "turn_index", name="pk_session_turn"),
    )
    op.create_table(
        "session_case",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("evalset_id", sa.String(), nullable=False),
        sa.Column("case_id", sa.String(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name="fk_session_case_session", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "evalset_id", "case_id", name="pk_session_case"),
        sqlite_with_rowid=False,
    )
