"""Trials with unreported calls, and the number with a known time, from the stored transcripts."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
import zstandard
from alembic import op

from evaldesk.errors import WorkspaceError
from evaldesk.store.migrations.tables import add_columns
from evaldesk.store.tables.columns import unpack

revision = "0035"
down_revision = "0034"

_ROWS = 500


def upgrade() -> None:
    add_columns("trial", "is_least bool", default=sa.false())
    for table in ("run", "run_case"):
        add_columns(table, "n_uncounted n_timed int", default="0")
    for (run_id,) in op.get_bind().execute(sa.text("SELECT id FROM run ORDER BY id")).all():
        _mark_trials(run_id)
    trials = (
        "SELECT count(*) FROM trial WHERE trial.run_id = run_case.run_id AND trial.case_index = run_case.case_index"
    )
    timed = f"{trials} AND verdict IS NOT NULL AND duration_ms > 0 AND trial_index < length(strip)"
    op.execute(f"UPDATE run_case SET n_timed = ({timed}), n_uncounted = ({trials} AND is_least)")  # noqa: S608
    for name in ("n_timed", "n_uncounted"):
        cases = f"SELECT coalesce(sum({name}), 0) FROM run_case WHERE run_case.run_id = run.id"  # noqa: S608
        op.execute(f"UPDATE run SET {name} = ({cases})")  # noqa: S608


def _mark_trials(run_id: int) -> None:
    """A trial whose cost is known tells every call, unless it is the cost of judges of a trial that came in a file."""
    find = sa.text(
        """
        SELECT trial.case_index, trial.trial_index, transcript.codec, transcript.data
        FROM trial JOIN transcript ON transcript.run_id = trial.run_id AND transcript.case_index = trial.case_index
            AND transcript.trial_index = trial.trial_index AND transcript.attempt = trial.attempt
        WHERE trial.run_id = :run_id AND (trial.case_index, trial.trial_index) > (:case_index, :trial_index)
            AND trial.verdict IS NOT NULL AND (trial.cost IS NULL OR :run_id IN (SELECT run_id FROM run_source))
        ORDER BY trial.case_index, trial.trial_index LIMIT :n
        """
    )
    key = "run_id = :run_id AND case_index = :case_index AND trial_index = :trial_index"
    mark = sa.text(f"UPDATE trial SET is_least = {sa.true()} WHERE {key}")  # noqa: S608
    place = {"run_id": run_id, "case_index": -1, "trial_index": -1}
    while rows := op.get_bind().execute(find, place | {"n": _ROWS}).all():
        place |= {"case_index": rows[-1].case_index, "trial_index": rows[-1].trial_index}
        updates = [
            {"run_id": run_id, "case_index": row.case_index, "trial_index": row.trial_index}
            for row in rows
            if _is_least(row.codec, row.data)
        ]
        if updates:
            op.get_bind().execute(mark, updates)


def _is_least(codec: int, data: bytes) -> bool:
    try:
        content = unpack(codec, data, dict[str, Any])
    except (WorkspaceError, msgspec.MsgspecError, zstandard.ZstdError):  # nobody can read it any more
        return False
    usages, turns = content.get("usages", []), content.get("transcript", {}).get("turns", [])
    is_told = any(usage.get("role", "agent") == "agent" for usage in usages) or any(
        turn.get("captures") for turn in turns
    )
    is_played = turns or content["status"] == "finished"
    return bool(is_played and not is_told) or any(usage.get("is_least") for usage in usages)
