"""Data sets whose rows are cases with a ground truth, graded by a reward."""

from __future__ import annotations

from pathlib import Path

from evaldesk.desk.imports.files import read_path
from evaldesk.errors import UsageError
from evaldesk.model import Criterion, EvalSet
from evaldesk.paths import did_you_mean
from evaldesk.wording.writer import show

REWARD = Criterion("reported_value", 1.0, {"path": "reward"})


def read_dataset(path: Path) -> EvalSet:
    """The rows as an eval set. Raises UsageError, FormatError."""
    if not path.is_file():
        hint = did_you_mean(path, "name one with -d, such as -d data.jsonl")
        raise UsageError(f"Dataset file not found: {path}; {hint}")
    imported_file = read_path(path)
    if imported_file.evalset is None:
        raise UsageError(f"{path} holds results, not rows; name a data set: .jsonl, .json, .parquet or .csv")
    for sentence in imported_file.warnings:
        show(f"{path}: {sentence}", err=True)
    return imported_file.evalset


def rows_between(
    evalset: EvalSet, *, rows: str | None, offset: int = 0, limit: int | None = None
) -> tuple[str, ...] | None:
    """The ids of the cases from the row `offset` on, at most `limit`; None for all, and for those of `rows`.

    Raises UsageError for both.
    """
    n = len(evalset.cases)
    if rows is not None and (offset or limit is not None):
        raise UsageError("--rows, and --offset or --limit: choose the rows by one of them")
    if not offset and limit is None:
        return None
    ids = tuple(case.id for case in evalset.cases[offset : None if limit is None else offset + limit])
    if not ids:
        raise UsageError(f"No rows to evaluate: --offset {offset} is past the {n:,} rows")
    return ids
