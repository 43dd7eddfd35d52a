"""Trials and scores that another tool recorded, as values of ours."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from evaldesk.model import (
    Criterion,
    ErrorRecord,
    JsonObject,
    Score,
    Transcript,
    TrialResult,
    TurnRecord,
    Usage,
    trial_verdict,
)


def recorded_score(criterion: Criterion, value: float | None, reason: str = "", details: JsonObject = {}) -> Score:  # noqa: B006
    """The score of a whole trial; no value, or one that is no number, is unscored with `reason`."""
    if value is None or not math.isfinite(value):
        return Score(criterion.metric, threshold=criterion.threshold, reason=reason or "The file has no value.")
    passed = None if criterion.threshold is None else value >= criterion.threshold
    return Score(criterion.metric, value, None, criterion.threshold, passed, reason, details)


def recorded_trial(
    place: tuple[int, int],
    turns: tuple[TurnRecord, ...],
    *,
    scores: Sequence[Score] = (),
    criteria: Sequence[Criterion] = (),
    error: ErrorRecord | None = None,
    stop_reason: str = "",
    duration_ms: float | None = None,
    usages: Sequence[Usage] | None = None,
) -> TrialResult:
    """The trial at `place`, its case index and trial index.

    Without `duration_ms` and `usages`, those of the turns are added up.
    """
    case_index, trial_index = place
    return TrialResult(
        run_id=0,
        case_index=case_index,
        trial_index=trial_index,
        status="errored" if error else "finished",
        verdict=trial_verdict(scores, criteria, error),
        stop_reason=stop_reason,
        transcript=Transcript(turns),
        scores=tuple(scores),
        usages=tuple(usage for turn in turns for usage in turn.usages) if usages is None else tuple(usages),
        duration_ms=sum(turn.duration_ms for turn in turns) if duration_ms is None else duration_ms,
        error=error,
    )


def trial_places(
    rows: Sequence[tuple[Hashable, int | None]], known: Iterable[Hashable] = ()
) -> list[tuple[int, int] | None]:
    """Case index and trial index of each row, a row being the case's key and the number the tool gave the trial.

    Cases count in the order of `known` and then as they are first met, trials in the order of their numbers or,
    without, of the rows. None for a row whose trial is there already.
    """
    cases: dict[Hashable, dict[int | tuple[int], int]] = {key: {} for key in known}
    first = [_first_row(cases.setdefault(key, {}), number, row) for row, (key, number) in enumerate(rows)]
    case_index = {key: index for index, key in enumerate(cases)}
    trial_index = {key: _ranks(trials) for key, trials in cases.items()}
    return [(case_index[key], trial_index[key][row]) if first[row] else None for row, (key, _) in enumerate(rows)]


def free_name(name: str, taken: dict[str, int]) -> str:
    """The name, or with a number when it is taken; `taken` counts how often each was asked for."""
    free, number = name, taken.get(name, 0)
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    taken[name] = max(number, 1)
    taken.setdefault(free, 1)
    return free


def file_stem(source: str) -> str:
    """The name of a file without its folders and its last ending: what a run is called that it holds."""
    return PurePath(source.replace("\\", "/")).stem or "imported"


def iso_ms(text: object) -> float | None:
    """Milliseconds since 1970 of a date and time as ISO 8601 writes it, UTC where it names no zone; else None."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def whole_number(value: object) -> int:
    """A count as a file states it; 0 for whatever is no whole number of at least 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def read_number(value: object) -> float | None:
    """A score as a file states it; None for whatever is no number, or one so big that nobody means it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def known_cost(value: object) -> float | None:
    """US dollars as a file states them; None for whatever is no number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return None
    return float(value)


def _first_row(trials: dict[int | tuple[int], int], number: int | None, row: int) -> bool:
    key = (row,) if number is None else number
    return trials.setdefault(key, row) == row


def _ranks(trials: dict[int | tuple[int], int]) -> dict[int, int]:
    """The trial index by row: numbered trials by their numbers, then the others as they came."""
    ordered = sorted(trials.items(), key=lambda item: (isinstance(item[0], tuple), item[0]))
    return {row: index for index, (_, row) in enumerate(ordered)}
