"""The contribution of one result of a trial to the tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, TypeAlias

from evaldesk.model import ErrorRecord, Score, TrialResult
from evaldesk.store.tables import STRIP_OF

Values: TypeAlias = dict[str, Any]

COUNTERS = (
    "n_passed",
    "n_failed",
    "n_errored",
    "n_unscored",
    "n_unpriced",
    "tokens_in",
    "tokens_out",
    "cost",
    "duration_ms",
)
MESSAGE_LENGTH = 200


def trial_key(result: TrialResult) -> Values:
    """The three columns that name the trial."""
    return {"run_id": result.run_id, "case_index": result.case_index, "trial_index": result.trial_index}


def outcome(result: TrialResult) -> Values:
    """The columns of `trial` for its result; a cancelled trial gets no verdict and stays to do."""
    error = _error(result)
    return {
        "status": result.status,
        "attempt": result.attempt,
        "verdict": result.verdict if result.status != "cancelled" else None,
        "n_calls": len(result.usages),
        "tokens_in": sum(usage.tokens_in for usage in result.usages),
        "tokens_out": sum(usage.tokens_out for usage in result.usages),
        "cost": result.cost,
        "duration_ms": result.duration_ms,
        "error_kind": error.kind if error else None,
        "error_message": error.message if error else None,
    }


def counters(row: Values) -> Values:
    """The contribution of a trial with a verdict to the COUNTERS of its case and its run."""
    verdicts = {f"n_{verdict}": int(row["verdict"] == verdict) for verdict in STRIP_OF}
    return verdicts | {
        "n_unpriced": int(row["cost"] is None and row["n_calls"] > 0),
        "tokens_in": row["tokens_in"],
        "tokens_out": row["tokens_out"],
        "cost": row["cost"] or 0.0,
        "duration_ms": row["duration_ms"],
    }


def scores(result: TrialResult) -> list[Values]:
    """Rows of `score`: each metric's value for the whole trial, where it has one."""
    whole = {score.metric: score for score in result.scores if score.turn is None and _is_number(score)}
    return [
        trial_key(result) | {"metric": score.metric, "value": score.value, "passed": score.passed}
        for score in whole.values()
    ]


def error_group(row: Values) -> tuple[str, str]:
    """The kind and the normalised message under which an errored trial is counted."""
    return row["error_kind"] or row["status"], normalised(row["error_message"] or "")


def normalised(message: str) -> str:
    """The first line of `message` without the parts that differ each time: addresses, ids and numbers read `#`."""
    line = next(iter(message.strip().splitlines()), "")
    line = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-f]{16,}\b", "#", line)
    return re.sub(r"\d+(?:\.\d+)?", "#", " ".join(line.split()))[:MESSAGE_LENGTH]


def _is_number(score: Score) -> bool:
    return score.value is not None and isfinite(score.value)


def _error(result: TrialResult) -> ErrorRecord | None:
    errors: Sequence[ErrorRecord | None] = (result.error, *(score.error for score in result.scores))
    return next((error for error in errors if error), None)
