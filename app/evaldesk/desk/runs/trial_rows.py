"""Trials as rows of a table: for pandas, CSV, JSON lines and Parquet alike."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from evaldesk.model import Case, RunConfig, Score, TrialResult

Cell: TypeAlias = str | int | float | bool | None

TRIAL_COLUMNS = (
    "run_id",
    "evalset_id",
    "case_id",
    "trial_index",
    "verdict",
    "status",
    "stop_reason",
    "attempt",
    "duration_ms",
    "tokens",
    "cost",
    "n_replayed",
    "capture",
    "error_kind",
    "error_message",
    "answer",
)


def trial_row(case: Case, trial: TrialResult, config: RunConfig) -> dict[str, Cell]:
    """One trial: `TRIAL_COLUMNS`, then one column for each criterion with its value, None where it is unscored.

    `n_replayed` counts the model calls that a recording answered: such a trial is no repeat of its own.
    `capture` are the ways by which calls and tokens became known, None where that was not noted.
    """
    turns = trial.transcript.turns
    values = {score.metric: score.value for score in trial.scores if score.turn is None}
    row: dict[str, Cell] = {
        "run_id": trial.run_id,
        "evalset_id": config.evalset_id,
        "case_id": case.id,
        "trial_index": trial.trial_index,
        "verdict": trial.verdict,
        "status": trial.status,
        "stop_reason": trial.stop_reason,
        "attempt": trial.attempt,
        "duration_ms": trial.duration_ms,
        "tokens": trial.tokens,
        "cost": trial.cost,
        "n_replayed": sum(usage.is_replayed for usage in trial.usages),
        "capture": ",".join(trial.transcript.captures) or None,
        "error_kind": trial.error.kind if trial.error else None,
        "error_message": trial.error.message if trial.error else None,
        "answer": turns[-1].answer if turns else None,
    }
    return row | {criterion.metric: values.get(criterion.metric) for criterion in config.criteria}


SCORE_COLUMNS = (
    "run_id",
    "evalset_id",
    "case_id",
    "trial_index",
    "turn",
    "metric",
    "value",
    "threshold",
    "passed",
    "reason",
    "error",
)


def score_row(case: Case, trial: TrialResult, score: Score, config: RunConfig) -> dict[str, Cell]:
    """One score: `SCORE_COLUMNS`; `turn` counts from 1 and is None for the score of the whole trial."""
    return {
        "run_id": trial.run_id,
        "evalset_id": config.evalset_id,
        "case_id": case.id,
        "trial_index": trial.trial_index,
        "turn": None if score.turn is None else score.turn + 1,
        "metric": score.metric,
        "value": score.value,
        "threshold": score.threshold,
        "passed": score.passed,
        "reason": score.reason,
        "error": score.error.message if score.error else None,
    }


T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")
"""The characters that a cell must not begin with (https://owasp.org/www-community/attacks/CSV_Injection)."""


def cell(value: T) -> T | str:
    """`value`; a text that a spreadsheet would take for a formula has a quote before it, which keeps it text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
