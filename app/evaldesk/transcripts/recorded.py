"""Runs, trials and scores that another tool recorded, as values of ours."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath

from evaldesk.errors import BadNumberError, FormatError
from evaldesk.model import (
    Case,
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
from evaldesk.model.bounds import checked_amount, checked_count, is_score


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Trials that another tool played. `results` name their case by its place in `cases`; their `run_id` is 0.

    `criteria` are the metrics the scores are of, whether or not Evaldesk has a metric of that name.
    """

    name: str
    agent: str
    cases: tuple[Case, ...]
    results: tuple[TrialResult, ...]
    criteria: tuple[Criterion, ...] = ()
    model: str | None = None
    note: str = ""


def recorded_score(criterion: Criterion, value: float | None, reason: str = "", details: JsonObject = {}) -> Score:  # noqa: B006
    """The score of a whole trial; no value, or one that is no number, is unscored with `reason`."""
    if value is None or not is_score(value):
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


def as_trials(runs: Sequence[RecordedRun]) -> RecordedRun:
    """One run with the trials of all, cases matched by id; names come from the first. Raises FormatError.

    A case that a run does not have gets no trial from it.
    """
    if not runs:
        raise FormatError("there is no run to put together")
    cases: dict[str, Case] = {}
    criteria: dict[str, Criterion] = {}
    results: list[TrialResult] = []
    n_trials: dict[str, int] = {}
    for run in runs:
        ids = [case.id for case in run.cases]
        if len(set(ids)) != len(ids):
            raise FormatError(f"{run.name}: two cases have the same id, so its trials cannot be matched by id")
        for case in run.cases:
            cases.setdefault(case.id, case)
        places = {case_id: place for place, case_id in enumerate(cases)}
        ranks = {case_id: n_trials.get(case_id, 0) for case_id in ids}
        for result in sorted(run.results, key=lambda result: (result.case_index, result.trial_index)):
            case_id = ids[result.case_index]
            results.append(replace(result, case_index=places[case_id], trial_index=ranks[case_id]))
            ranks[case_id] += 1
        n_trials |= ranks
        for criterion in run.criteria:
            criteria.setdefault(criterion.metric, criterion)
    return replace(runs[0], cases=tuple(cases.values()), results=tuple(results), criteria=tuple(criteria.values()))


def trial_places(
    rows: Sequence[tuple[Hashable, int | None]], known: Iterable[Hashable] = ()
) -> list[tuple[int, int] | None]:
    """Case index and trial index of each row, a row being the case's key and the number the tool gave the trial.

    Cases count in the order of `known` and then of their first row, trials in the order of their numbers or, without,
    of the rows. None for a row whose trial is there already.
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
    """The name of a file without its folders and its last ending: the name of a run in it."""
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


def whole_number(value: object, name: str = "tokens") -> int:
    """A count as a file states it; 0 for what is no number. Raises FormatError for one that no count can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    try:
        return checked_count(f"usage.{name}", value)
    except BadNumberError as error:
        raise FormatError(str(error)) from error


def read_number(value: object) -> float | None:
    """A score as a file states it; None for any value that is no number, or one beyond a float's precision."""
    return float(value) if is_score(value) else None


def known_cost(value: object, name: str = "cost") -> float | None:
    """US dollars as a file states them; None for what is no number. Raises FormatError for one that no cost can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(checked_amount(f"usage.{name}", value))
    except BadNumberError as error:
        raise FormatError(str(error)) from error


def known_time(value: object) -> float | None:
    """A duration as a file states it; None for any value that is no number of at least 0."""
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
