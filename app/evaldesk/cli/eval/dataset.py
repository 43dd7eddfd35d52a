"""Data sets whose rows are cases with a ground truth, graded by a reward."""

from __future__ import annotations

import re
from pathlib import Path

from evaldesk.desk.imports.files import read_path
from evaldesk.errors import UsageError
from evaldesk.model import Criterion, EvalSet
from evaldesk.paths import did_you_mean
from evaldesk.wording.writer import show

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
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


def chosen_rows(
    evalset: EvalSet, *, rows: str | None, offset: int = 0, limit: int | None = None
) -> tuple[str, ...] | None:
    """The ids of the cases of these rows, counted from 0; None for all. Raises UsageError.

    `rows` is as in `3,7,10-20`, each row once, in the order of the file.
    """
    n = len(evalset.cases)
    if rows is not None:
        if offset or limit is not None:
            raise UsageError("--rows, and --offset or --limit: choose the rows by one of them")
        return tuple(evalset.cases[at].id for at in sorted({at for part in rows.split(",") for at in _range(part, n)}))
    if not offset and limit is None:
        return None
    ids = tuple(case.id for case in evalset.cases[offset : None if limit is None else offset + limit])
    if not ids:
        raise UsageError(f"No rows to evaluate: --offset {offset} is past the {n:,} rows")
    return ids


def _range(part: str, n: int) -> range:
    """The rows of `7` or `10-20`. Raises UsageError."""
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        raise UsageError(
            f"--rows: {part.strip()[:40]!r} is not a row or a range; wanted rows from 0, such as 3,7,10-20"
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"--rows range '{first}-{last}' is inverted; write it as {last}-{first}")
    if last >= n:
        raise UsageError(f"--rows: there is no row {last}; the file has {n:,} rows, 0 to {n - 1:,}")
    return range(first, last + 1)
