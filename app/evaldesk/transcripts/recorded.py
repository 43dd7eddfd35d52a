"""Runs, trials and scores that another tool recorded, as values of ours."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from math import isclose
from operator import itemgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from evaldesk.backports import UTC
from evaldesk.errors import NAME_LIMIT, BadNumberError, FormatError
from evaldesk.model import (
    Case,
    Criterion,
    EarlierResult,
    ErrorRecord,
    Event,
    JsonObject,
    Prompts,
    RecordedPlan,
    Score,
    StopReason,
    Transcript,
    TrialResult,
    TurnRecord,
    Usage,
    Waiting,
    trial_verdict,
)
from evaldesk.model.evalset import Cases
from evaldesk.model.transcript import Role, call_key, checked_amount, checked_count, is_score
from evaldesk.reading.json_places import NUMBER_NAMES
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.transcripts.plumbing import ENDING_TOOLS
from evaldesk.wire import to_json

T = TypeVar("T")

if TYPE_CHECKING:
    Results: TypeAlias = Sequence[TrialResult]
else:
    Results = tuple[TrialResult, ...]


@dataclass(frozen=True, slots=True)
class SummaryValue:
    """A number in the tool's own summary of a run, and the same number counted from its trials as that tool counts."""

    name: str
    in_file: float
    from_trials: float

    @property
    def differs(self) -> bool:
        """Whether they are not the same, but for the rounding of decimals in a file."""
        return not isclose(self.in_file, self.from_trials, rel_tol=1e-4, abs_tol=1e-4)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Trials that another tool played. `results` name their case by its place in `cases`; their `run_id` is 0.

    `criteria` are the metrics the scores are of, whether or not Evaldesk has a metric of that name. Cases and results
    of a large run are ReadItems. `plan` has the number of planned trials and the end of the run, `summary` the values
    of the tool's own summary.
    """

    name: str
    agent: str
    cases: Cases
    results: Results
    criteria: tuple[Criterion, ...] = ()
    model: str | None = None
    note: str = ""
    plan: RecordedPlan = field(default_factory=RecordedPlan)
    summary: tuple[SummaryValue, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ReadItems(Sequence[T], Generic[T]):
    """`n` values that are not in memory: `read` gives them one after the other, from one of them on."""

    n: int
    read: Callable[[int], Iterator[T]]

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(self.n)))
        return next(self.read(range(self.n)[index]))

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[T]:
        return self.read(0)


MAX_EARLIER = 2_000
"""Characters of the error of a result that a later one replaced."""

UNNUMBERED = 2**40
"""Trials without a number come after those that have one, which is less."""


class TrialRows:
    """The cases and the trials of a run as the rows of its file come, cases by keys of the file.

    Cases count in the order of their first row. Trials of a case count in the order of their numbers or, where they
    have none, of their rows. Of several results of one number the last counts, and the others are kept beside it;
    `n_replaced` counts these.
    """

    def __init__(self) -> None:
        self.n_replaced = 0
        self._places: dict[Hashable, int] = {}
        self._cases: dict[int, tuple[int, Case]] = {}
        self._results: list[tuple[int, int, TrialResult | None]] = []
        self._rows: list[dict[int, int]] = []

    def place(self, key: str | int) -> int:
        """The place of the case with that key among the cases; a new one after the others."""
        place = self._places.setdefault(key, len(self._places))
        if place == len(self._rows):
            self._rows.append({})
        return place

    def offer(self, place: int, case: Case, weight: int = 0) -> None:
        """A case for that place: the heaviest of all that are offered stays, of several the first."""
        if place not in self._cases or weight > self._cases[place][0]:
            self._cases[place] = (weight, case)

    def case(self, place: int) -> Case:
        """The case that was offered for that place."""
        return self._cases[place][1]

    def add(self, place: int, result: TrialResult | None, number: int | None = None) -> None:
        """The trial of a row; None for a planned trial without a result, which replaces no result."""
        rows = self._rows[place]
        number = UNNUMBERED + len(rows) if number is None else number
        before = self._results[rows[number]][2] if number in rows else None
        if before is not None:
            if result is None:
                return
            self._results[rows[number]] = (place, number, None)
            result = replacing(before, result)
            self.n_replaced += 1
        rows[number] = len(self._results)
        self._results.append((place, number, result))

    @property
    def earlier_words(self) -> tuple[str, ...]:
        """A sentence about results that a later one of the same trial replaced; empty without any."""
        if not self.n_replaced:
            return ()
        were = "1 earlier result" if self.n_replaced == 1 else f"{self.n_replaced:,} earlier results"
        return (f"{were} of a trial that the file has a later one of: the later counts, the trial shows both.",)

    def plan_of(self, n_cases: int, n_stated: int | None = None) -> RecordedPlan:
        """The plan of a run that plays each case as often: `n_stated` times, or as the numbers of all trials say."""
        n_each = max(n_stated or self.n_numbers, 1)
        return RecordedPlan(n_each * n_cases, n_each)

    @property
    def n_numbers(self) -> int:
        """The number of trial indexes: the trials of each case in a complete run."""
        return len({number for rows in self._rows for number in rows})

    def sorted_keys(self) -> Iterator[tuple[int, Any]]:
        """The places of the cases and their keys, in the order of the keys."""
        return iter(sorted(((place, key) for key, place in self._places.items()), key=itemgetter(1)))

    def finish(self, *, by_key: bool = False) -> tuple[Cases, Results]:
        """The cases, in the order of their keys if asked, and the trials in the order of their rows."""
        order = [place for place, _ in self.sorted_keys()] if by_key else range(len(self._rows))
        at = {place: index for index, place in enumerate(order)}
        ranks = [{number: rank for rank, number in enumerate(sorted(rows))} for rows in self._rows]
        results = (
            replace(result, case_index=at[place], trial_index=ranks[place][number])
            for place, number, result in self._results
            if result is not None
        )
        return tuple(self._cases[place][1] for place in order), tuple(results)


def replacing(before: TrialResult, result: TrialResult) -> TrialResult:
    """The later result of a trial, with the one before it beside it."""
    errors = (error.message for error in (before.error, *(score.error for score in before.scores)) if error)
    scores = {score.metric: score.value for score in before.scores if score.turn is None}
    earlier = EarlierResult(before.verdict, next(errors, "")[:MAX_EARLIER], scores)
    return replace(result, earlier=(*before.earlier, earlier, *result.earlier))


@dataclass(frozen=True, slots=True)
class LargeResults(ReadItems[TrialResult]):
    """The trials of a run that are not in memory, counted by their verdicts."""

    verdicts: Mapping[str, int]


def verdict_counts(results: Sequence[TrialResult]) -> Counter[str]:
    """The number of trials with each verdict."""
    return Counter(results.verdicts if isinstance(results, LargeResults) else [each.verdict for each in results])


BAD_NUMBER = "bad_number"


def recorded_score(
    criterion: Criterion, value: float | str | None, reason: str = "", details: JsonObject | None = None
) -> Score:
    """The score of a whole trial; a missing value or a value that is no number is unscored, and its reason says so."""
    if value is None or not is_score(value):
        words = "" if value is None else f"The score in the file is {f'{value}'[:NAME_LIMIT]}, not a number."
        reason = " ".join(filter(None, (words, reason))) or "The file has no value."
        return Score(criterion.metric, threshold=criterion.threshold, reason=reason)
    passed = None if criterion.threshold is None else value >= criterion.threshold
    return Score(criterion.metric, value, None, criterion.threshold, passed, reason, details or {})


def recorded_trial(
    turns: tuple[TurnRecord, ...],
    *,
    scores: Sequence[Score] = (),
    criteria: Sequence[Criterion] = (),
    error: ErrorRecord | None = None,
    stop_reason: str = "",
    duration_ms: float | None = None,
    usages: Sequence[Usage | ErrorRecord] | None = None,
    prompts: Prompts | None = None,
) -> TrialResult:
    """The trial of these turns; TrialRows has its case.

    Without `duration_ms` and `usages`, those of the turns are added up. A number that cannot be is its error.
    """
    stated = [usage for turn in turns for usage in turn.usages] if usages is None else usages
    wrong = error or next(_bad_numbers(turns, stated), None)
    if wrong is not error:
        error, stop_reason = wrong, "error"
    return TrialResult(
        run_id=0,
        case_index=0,
        trial_index=0,
        status="errored" if error else "finished",
        verdict=trial_verdict(scores, criteria, error),
        stop_reason=stop_reason,
        transcript=Transcript(turns),
        scores=tuple(scores),
        usages=tuple(usage for usage in stated if isinstance(usage, Usage)),
        duration_ms=sum(turn.duration_ms for turn in turns) if duration_ms is None else duration_ms,
        error=error,
        prompts=prompts,
    )


def told_turns(result: TrialResult) -> tuple[TurnRecord, ...]:
    """The turns, with the tokens of the agent at their end where its source states them for the whole trial alone."""
    turns = result.transcript.turns
    if not turns or any(turn.usages for turn in turns):
        return turns
    *before, last = turns
    own = (usage_event(usage) for usage in result.usages if usage.role == "agent")
    usages = tuple(replace(event, at_ms=last.duration_ms) for event in own)
    return (*before, replace(last, events=(*last.events, *usages)))


def ended_so(turn: TurnRecord, stop_reason: StopReason, requests: Iterable[Waiting] = ()) -> TurnRecord:
    """The turn that ended without an answer, with the requests that wait for a person."""
    events = (Event("waiting", at_ms=turn.duration_ms, waiting=each) for each in requests)
    return replace(turn, events=(*turn.events, *events), stop_reason=stop_reason)


def spoken_turns(turns: tuple[TurnRecord, ...]) -> tuple[TurnRecord, ...]:
    """The turns, the first one without the message that its case does not have: a row with metadata alone has none."""
    if not turns or turns[0].query or turns[0].media:
        return turns
    first, *others = turns
    events = tuple(event for event in first.events if event.kind != "user_message" or event.text)
    return (replace(first, events=events), *others)


def cut_short(turn: TurnRecord) -> TurnRecord:
    """The turn of a file that tells results, which was interrupted if it ends in calls.

    A turn with a recorded end, or one that was captured here, is unchanged.
    """
    is_open = turn.stop_reason == "answered" and not turn.captures
    return replace(turn, stop_reason="interrupted") if is_open and ends_in_calls(turn.events) else turn


def ends_in_calls(events: Iterable[Event]) -> bool:
    """Whether one of the last calls has no result, where neither an answer nor another call follows."""
    own = [event for event in events if event.kind in _OWN and not (event.is_partial or event.within)]
    results = [*takewhile(lambda event: event.kind == "tool_result", reversed(own))]
    calls = takewhile(lambda event: event.kind == "tool_call", reversed(own[: len(own) - len(results)]))
    own_calls = [event.call for event in calls if event.call and event.call.name not in ENDING_TOOLS]
    result_keys = Counter(call_key(event.call) for event in results if event.call)
    return bool(Counter(map(call_key, own_calls)) - result_keys)


_OWN = frozenset({"agent_message", "tool_call", "tool_result"})


def _bad_numbers(turns: Iterable[TurnRecord], usages: Iterable[Usage | ErrorRecord]) -> Iterator[ErrorRecord]:
    events = (event for turn in turns for event in turn.events)
    yield from (event.error for event in events if event.error and event.error.kind == BAD_NUMBER)
    yield from (usage for usage in usages if isinstance(usage, ErrorRecord))


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
    return replace(
        runs[0],
        cases=tuple(cases.values()),
        results=tuple(results),
        criteria=tuple(criteria.values()),
        plan=_plan_of_all(runs),
    )


def _plan_of_all(runs: Sequence[RecordedRun]) -> RecordedPlan:
    """The plan of joined runs: the sum of their plans, with the end of the first interrupted one."""
    plans = [run.plan for run in runs]
    n_planned = sum(
        len(run.results) if plan.n_planned is None else plan.n_planned for run, plan in zip(runs, plans, strict=True)
    )
    ending_plan = next((plan for plan in plans if plan.is_cut), plans[0])
    is_told = any(plan.n_planned is not None for plan in plans)
    return RecordedPlan(n_planned if is_told else None, 1, ending_plan.status, ending_plan.reason)


def free_name(name: str, used_names: dict[str, int]) -> str:
    """The name, or with a number when it is taken; `used_names` counts how often each was asked for."""
    free, number = name, used_names.get(name, 0)
    while free in used_names:
        number += 1
        free = f"{name} ({number})"
    used_names[name] = max(number, 1)
    used_names.setdefault(free, 1)
    return free


def file_stem(source: str) -> str:
    """The name of a file without its folders and its last ending: the name of a run in it."""
    return PurePath(source.replace("\\", "/")).stem or "imported"


def iso_ms(text: object) -> float | None:
    """Milliseconds since 1970 of a date and time as ISO 8601 writes it, UTC where it names no zone; else None."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def recorded_usage(
    model: str,
    counts: Mapping[str, object],
    tokens_in: str,
    tokens_out: str,
    *,
    cost: object = None,
    role: Role = "agent",
    duration_ms: float = 0.0,
    tokens_cached: object = None,
    tokens_reasoning: object = None,
) -> Usage | ErrorRecord:
    """The usage whose tokens stand in `counts` under two keys; the error of its trial where a number cannot be."""
    try:
        return Usage(
            model,
            role,
            whole_number(counts.get(tokens_in), tokens_in),
            whole_number(counts.get(tokens_out), tokens_out),
            known_cost(cost),
            duration_ms=duration_ms,
            tokens_cached=whole_number(tokens_cached, "tokens_cached"),
            tokens_reasoning=whole_number(tokens_reasoning, "tokens_reasoning"),
        )
    except BadNumberError as error:
        return bad_number(error)


def bad_number(error: BadNumberError) -> ErrorRecord:
    """The error of a trial with a number that cannot be, which the others of its file do not share."""
    return ErrorRecord(BAD_NUMBER, str(error))


def usage_event(usage: Usage | ErrorRecord, author: str = "") -> Event:
    """The event of a usage, or of the number that kept it from being one."""
    if isinstance(usage, Usage):
        return Event("usage", author=author, usage=usage)
    return Event("error", author=author, error=usage)


def whole_number(value: object, name: str = "tokens") -> int:
    """A count as a file states it; 0 where it states none. Raises BadNumberError for text and other values."""
    return 0 if value is None else checked_count(f"usage.{name}", value)


def read_number(value: object) -> float | None:
    """A score as a file states it; None for any value that is no number, or one beyond a float's precision."""
    return float(value) if is_score(value) else None


def number_or_name(value: object) -> float | str | None:
    """As `read_number`; NaN, an infinity, or a number beyond that precision is given by its name."""
    is_named = value in NUMBER_NAMES or (isinstance(value, int | float) and not isinstance(value, bool))
    return read_number(value) if is_score(value) or not is_named else f"{value}"[:NAME_LIMIT]


def known_cost(value: object) -> float | None:
    """US dollars as a file states them; None where it states none. Raises BadNumberError for text and other values."""
    return None if value is None else float(checked_amount("usage.cost", value))


def known_time(place: JsonPosition, value: object, notes: Notes) -> float | None:
    """A duration as a file states it; None, with a note, for a value that is no number of at least 0."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        notes.refuse("a time that is not a number of at least 0", place)
        return None
    return float(value)


def digest_of(run: RecordedRun) -> str:
    """A hash of all that a run says in its file: that of its JSON, which is made a case and a trial at a time."""
    digest = hashlib.sha256()
    before, _, after = to_json(replace(run, cases=(), results=())).partition(b'"cases":[],"results":[]')
    digest.update(before + b'"cases":[')
    _add_all(digest.update, run.cases)
    digest.update(b'],"results":[')
    _add_all(digest.update, (replace(result, prompts=None) for result in run.results))
    digest.update(b"]" + after)
    return digest.hexdigest()


def _add_all(update: Callable[[bytes], None], values: Iterable[object]) -> None:
    for number, value in enumerate(values):
        update(b"," + to_json(value) if number else to_json(value))
