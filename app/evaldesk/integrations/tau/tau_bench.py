"""The format "tau-bench": results of tau-bench (the first one), several trials of each task with every message.

A list of `{task_id, trial, reward, info: {task, reward_info, ...}, traj: [messages]}`. (sierra-research/tau-bench)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from evaldesk.formats.exchange import MAX_ROW, Imported, ReadOnly
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.model import Case, Criterion, ErrorRecord, EvalSet, Score, SessionInit, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.reading.json_places import NUMBER_NAMES
from evaldesk.reading.json_stream import StreamedList
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import RECORDED_DECODER, JsonPosition, parse_recorded_json
from evaldesk.reading.values import (
    ABSENT,
    read_integer,
    read_key,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_number,
    read_optional_text,
    text_of,
)
from evaldesk.transcripts.messages.chat import read_chat
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import (
    RecordedRun,
    TrialRows,
    file_stem,
    recorded_score,
    recorded_trial,
    verdict_counts,
)
from evaldesk.transcripts.recorded_ends import bound_of, recorded_error

REWARD = Criterion("reward", 1.0)
_ALMOST = 1e-6
"""tau-bench calls a trial a success when its reward is this near to 1."""
_PLAN_WEIGHT = 2**40
"""The weight of a case with its task: more than the number of any row."""


class TauBench(ReadOnly):
    """The format "tau-bench"."""

    title = "tau-bench results"
    suffixes = (".json",)
    n_readings = 1
    instead = "write an eval set as tau2"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a list of runs, each with a task id and a trajectory."""
        document = peek(data).document
        first = document[0] if isinstance(document, list) and document else None
        return isinstance(first, dict) and "task_id" in first and bool({"traj", "reward"} & set(first))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """One run with a case for each task. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        rows = read_list(JsonPosition(document), document.value, lambda at, raw: (at, read_trial_row(at, raw)))
        return _build_import(rows, file_stem(source), TrialRows())

    @staticmethod
    def read_large(file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read`, a run at a time."""
        items = StreamedList(file, source, max_item=MAX_ROW, decoder=RECORDED_DECODER)
        rows = ((JsonPosition(item), read_trial_row(JsonPosition(item), item.value)) for item in items)
        return _build_import(rows, file_stem(source), TrialRowsOnDisk())


def reward_value(place: JsonPosition, raw: Any) -> float | str | None:
    """A reward, with values that tau-bench takes for 1 made 1, a name such as NaN, or None. Raises FormatError."""
    if raw in NUMBER_NAMES:
        return str(raw)
    value = read_optional_number(place, raw, least=-1e9, most=1e9)
    return 1.0 if value is not None and abs(value - 1) <= _ALMOST else value


def read_trial_row(place: JsonPosition, raw: Any) -> dict[str, Any]:
    """An object with a `task_id` and perhaps the number of a `trial`. Raises FormatError."""
    row = read_mapping(place, raw)
    read_key(place.at("task_id"), row.get("task_id", ABSENT))
    if row.get("trial") is not None:
        read_integer(place.at("trial"), row["trial"])
    return row


def _build_import(rows: Iterable[tuple[JsonPosition, dict[str, Any]]], name: str, trials: TrialRows) -> Imported:
    notes = Notes()
    planned_ids: set[str] = set()
    for number, (at, row) in enumerate(rows):
        key = str(row["task_id"])
        place = trials.place(key)
        if key not in planned_ids:  # a trial that broke may lack its task
            case = _case(at, row, notes)
            has_plan = bool((case.scenario or {}).get("conversation_plan"))
            trials.offer(place, case, _PLAN_WEIGHT if has_plan else number)
            planned_ids |= {key} if has_plan else set()
        trials.add(place, _result(at, row, notes), row.get("trial"))
    case_items, results = trials.finish()
    cases = tuple(case_items)
    run = RecordedRun(name, name, cases, results, (REWARD,), plan=trials.plan_of(len(cases)))
    kept_words = (*_kept_words(cases), *trials.earlier_words)
    understood_words = _understood_words(verdict_counts(results)["errored"])
    return Imported("tau-bench", EvalSet(name, cases=cases), (run,), understood_words, kept_words, notes.sentences)


def _understood_words(n_errored: int) -> tuple[str, ...]:
    rule = "A trial passes when its reward is 1."
    if not n_errored:
        return (rule,)
    return rule, f"{counted(n_errored, 'trial')} ended in an error; tau-bench itself counts them as failures."


def _kept_words(cases: Sequence[Case]) -> tuple[str, ...]:
    if not any("actions" in case.extra for case in cases):
        return ()
    return ("The reference actions are not asserted: they are one way to the right database, not the only one.",)


def _case(place: JsonPosition, row: dict[str, Any], notes: Notes) -> Case:
    at = place.at("info", "task")
    task = read_optional_mapping(at, _info(place, row).get("task")) or {}
    plan = read_optional_text(at.at("instruction"), task.get("instruction")) or ""
    user_id = read_optional_text(at.at("user_id"), task.get("user_id")) or ""
    return Case(
        str(row["task_id"]),
        scenario={"starting_prompt": "", "conversation_plan": plan},  # the user has the first word there, too
        initial_session=SessionInit(user_id=user_id) if user_id else None,
        extra=notes.unknown_keys(at, task, ("instruction", "user_id")),
    )


def _result(place: JsonPosition, row: dict[str, Any], notes: Notes) -> TrialResult:
    info = _info(place, row)
    messages = read_chat(place.at("traj"), row.get("traj", ABSENT), notes)
    error = _error(info)
    scores = () if error else (_score(place, row, info),)
    return recorded_trial(
        turns_of(messages, error, tells_results=True),
        scores=scores,
        criteria=(REWARD,),
        error=error,
        stop_reason=_stop_reason(messages, info, error),
    )


def _score(place: JsonPosition, row: dict[str, Any], info: dict[str, Any]) -> Score:
    value = reward_value(place.at("reward"), row.get("reward"))
    reward_info = info.get("reward_info")
    rewarded = reward_info.get("info") if isinstance(reward_info, dict) else None
    other_info = {key: item for key, item in info.items() if key not in ("task", "reward_info")}
    details = {**other_info, **(rewarded if isinstance(rewarded, dict) else {})}
    return recorded_score(REWARD, value, _reason(value, reward_info, details), details)


def _reason(value: float | str | None, reward_info: Any, details: dict[str, Any]) -> str:
    if value == 1:
        return "The database and the required outputs are as expected."
    if reward_info is None:
        return "The trial reached the limit of steps before it was judged."
    if details.get("r_actions") == 0:
        return "The database differs from that of the reference actions."
    outputs = details.get("outputs")
    missing_texts = (
        [word for word, is_present in outputs.items() if not is_present] if isinstance(outputs, dict) else []
    )
    return f"Not said: {', '.join(missing_texts)}." if missing_texts else "tau-bench gives no reason."


def _error(info: dict[str, Any]) -> ErrorRecord | None:
    message = info.get("error")
    if not message or bound_of(str(message)):
        return None
    return recorded_error(message, text_of(info.get("traceback")))


def _stop_reason(messages: Sequence[Message], info: dict[str, Any], error: ErrorRecord | None) -> str:
    if error:
        return "error"
    if bound := bound_of(text_of(info.get("error"))):
        return bound
    if messages and messages[-1].is_farewell:
        return "user_stop"
    return "max_steps" if info.get("reward_info") is None else "agent_stop"


def _info(place: JsonPosition, row: dict[str, Any]) -> dict[str, Any]:
    return read_optional_mapping(place.at("info"), row.get("info")) or {}
