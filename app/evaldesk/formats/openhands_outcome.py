"""Which key of an OpenHands row says whether the instance was solved: each benchmark has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.model import Criterion

USUAL = ("resolved", "success", "passed", "correct", "result", "score", "reward")
MAX_NAMED = 20


def outcome_keys(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Every key that has a verdict or a share in some row, the usual ones first."""
    found = dict.fromkeys(key for row in rows for key in outcome(row))
    return (*(key for key in USUAL if key in found), *(key for key in found if key not in USUAL))


def outcome(row: dict[str, Any]) -> dict[str, float]:
    """What a row says of its outcome: keys of the test result and its `report`, usual ones of the row itself."""
    test = row.get("test_result")
    test = test if isinstance(test, dict) else {}
    report = test.get("report")
    found = {key: row[key] for key in USUAL if key in row} | test | (report if isinstance(report, dict) else {})
    return dict(_numbers(found))


def chosen_criterion(keys: Sequence[str], wanted: str, source: str) -> Criterion | None:
    """The key that decides: the one that is wanted, else the first usual one. Raises FormatError when no row has it."""
    if wanted and wanted not in keys:
        there = f"there are: {', '.join(keys[:MAX_NAMED])}" if keys else "no row has a true, a false or a share"
        raise FormatError(f"no row says {wanted[:80]!r} of its outcome; {there}", source=source)
    name = wanted or next((key for key in keys if key in USUAL), "")
    return Criterion(name, 1.0) if name else None


def outcome_words(criterion: Criterion | None, keys: Sequence[str]) -> str:
    """What decides whether a trial passes, and what else could."""
    others = [key for key in keys if criterion is None or key != criterion.metric]
    named = ", ".join(others[:MAX_NAMED]) + (" and more" if others[MAX_NAMED:] else "")
    if criterion is None:
        choice = f"choose what decides among {named}, or score them here" if named else "score them here"
        return f"No row says whether it was solved, so its trials are unscored; {choice}."
    also = f" Rows also say {named}, which could decide instead." if named else ""
    return f"A trial passes when its {criterion.metric} is true or 1; a row with an error is errored, not failed.{also}"


def _numbers(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, bool) or (isinstance(value, int | float) and 0 <= value <= 1):
            yield key, float(value)
