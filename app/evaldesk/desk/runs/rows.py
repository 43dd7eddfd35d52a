"""Rows of an eval set by their numbers, such as `3,7,10-20`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.model import Case

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def chosen_rows(cases: Sequence[Case], rows: str) -> tuple[str, ...]:
    """The ids of the cases of these rows, counted from 0, each once and in the order of the file. Raises UsageError."""
    n = len(cases)
    return tuple(cases[at].id for at in sorted({at for part in rows.split(",") for at in _range(part, n)}))


def _range(part: str, n: int) -> range:
    """The rows of `7` or `10-20`. Raises UsageError."""
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        raise UsageError(
            f"--rows: {part.strip()[:NAME_LIMIT]!r} is not a row or a range; wanted rows from 0, such as 3,7,10-20",
            field="rows",
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"--rows range '{first}-{last}' is inverted; write it as {last}-{first}", field="rows")
    if last >= n:
        raise UsageError(f"--rows: there is no row {last}; the file has {n:,} rows, 0 to {n - 1:,}", field="rows")
    return range(first, last + 1)
