"""The format "tau2-results": simulations of tau2-bench with the tasks they are of, several trials of each.

An object `{info, tasks, simulations: [{task_id, trial, messages, reward_info, termination_reason, ...}]}`.
(sierra-research/tau2-bench data_model/simulation.py)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.formats.import_words import counted
from evaldesk.formats.tau.tau2 import read_tasks, why_not_asserted
from evaldesk.formats.tau.tau_bench import REWARD, read_trial_row, reward_value
from evaldesk.model import Criterion, ErrorRecord, EvalSet, Score, TrialResult, Usage
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, Place, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_mapping, read_optional_text
from evaldesk.transcripts.chat_messages import read_chat_message
from evaldesk.transcripts.messages import Message, turns_of
from evaldesk.transcripts.recorded import (
    RecordedRun,
    file_stem,
    iso_ms,
    known_time,
    recorded_score,
    recorded_trial,
    recorded_usage,
    trial_places,
)

_NOT_THE_AGENT = ("infrastructure_error", "context_window_exceeded", "unexpected_error", "user_error")
"""Ends after which a reward says nothing about the agent. tau2 itself leaves out the first two and fails the others."""
_TOLD = ("messages", "ticks", "reward_info", "task_id", "trial", "termination_reason", "duration")


class Tau2Results(ReadOnly):
    """The format "tau2-results"."""

    title = "tau2-bench results"
    suffixes = (".json",)
    instead = "write an eval set as tau2"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object of tasks and their simulations."""
        whole = peek(data).whole
        return isinstance(whole, dict) and "tasks" in whole and bool({"simulations", "simulation_index"} & set(whole))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The eval set of the tasks and one run of the simulations. Raises FormatError."""
        document = parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
        whole = read_mapping(Place(document), document.value)
        return _imported(Place(document), whole, file_stem(source))


def _imported(place: Place, whole: dict[str, Any], name: str) -> Imported:
    notes = Notes()
    cases = read_tasks(place.at("tasks"), whole.get("tasks", ABSENT), notes)
    simulations = read_list(place.at("simulations"), whole.get("simulations") or [], read_trial_row)
    if not simulations and whole.get("simulation_index"):
        notes.refuse("the simulations, which tau2 keeps in the folder beside this file", place.at("simulation_index"))
    ids = [case.id for case in cases]
    places = trial_places([(str(row["task_id"]), row.get("trial")) for row in simulations], ids)
    results = []
    for index, (row, trial) in enumerate(zip(simulations, places, strict=True)):
        at = place.at("simulations", index)
        if trial is None:
            notes.refuse("a second simulation of the same trial of a task", at)
        elif trial[0] >= len(cases):
            notes.refuse("a simulation of a task that the file does not have", at)
        else:
            results.append(_result(at, row, trial, notes))
    info = read_optional_mapping(place.at("info"), whole.get("info")) or {}
    agent = read_optional_mapping(place.at("info", "agent_info"), info.get("agent_info")) or {}
    criteria = _criteria(results)
    run = RecordedRun(
        name=name,
        agent=read_optional_text(place.at("info", "agent_info", "implementation"), agent.get("implementation")) or name,
        cases=cases,
        results=tuple(results),
        criteria=criteria,
        model=read_optional_text(place.at("info", "agent_info", "llm"), agent.get("llm")),
        note=_note(info),
    )
    evalset = EvalSet(name, cases=cases)
    runs = (run,) if results else ()
    return Imported("tau2-results", evalset, runs, _understood(results), why_not_asserted(cases), notes.sentences)


def _understood(results: Sequence[TrialResult]) -> tuple[str, ...]:
    said = "A trial passes when its reward is 1; the parts of the reward only inform."
    ends = Counter(result.stop_reason for result in results if result.error)
    if not ends:
        return (said,)
    broke = ", ".join(f"{n} by {end}" for end, n in ends.items())
    return (
        said,
        f"{counted(ends.total(), 'trial')} ended without the agent being to blame ({broke}): errors, not failures.",
    )


def _criteria(results: Sequence[TrialResult]) -> tuple[Criterion, ...]:
    names = dict.fromkeys(score.metric for result in results for score in result.scores)
    return (REWARD, *(Criterion(name) for name in names if name != REWARD.metric))


def _note(info: dict[str, Any]) -> str:
    known = {key: info.get(key) for key in ("git_commit", "seed", "max_steps")}
    return ", ".join(f"{key} {value}" for key, value in known.items() if isinstance(value, str | int))[:200]


def _result(place: Place, row: dict[str, Any], trial: tuple[int, int], notes: Notes) -> TrialResult:
    if row.get("ticks"):
        notes.refuse("the ticks of a voice simulation", place.at("ticks"))
    said = row.get("messages")
    messages = () if said is None else read_list(place.at("messages"), said, lambda at, raw: _read(at, raw, notes))
    end = read_optional_text(place.at("termination_reason"), row.get("termination_reason")) or ""
    error = ErrorRecord("recorded", f"tau2 ended the simulation: {end}") if end in _NOT_THE_AGENT else None
    scores = () if error else _scores(place, row, end)
    duration_s = known_time(place.at("duration"), row.get("duration"), notes)
    return recorded_trial(
        trial,
        turns_of(messages, error),
        scores=scores,
        criteria=(REWARD,),
        error=error,
        stop_reason=end,
        duration_ms=None if duration_s is None else duration_s * 1000,
    )


def _read(place: Place, raw: Any, notes: Notes) -> Message:
    """One message; tool calls of the simulated user become a line of the log."""
    fields = read_mapping(place, raw)
    message = read_chat_message(place, raw, notes)
    if fields.get("requestor") == "user":
        message = Message("system", f"A tool of the user gave: {message.result}")
    elif message.speaker == "user" and fields.get("tool_calls"):
        message = Message("system", f"The user called {json.dumps(fields['tool_calls'], ensure_ascii=False)}")
    return replace(message, usage=_usage(fields), at_ms=iso_ms(fields.get("timestamp")))


def _usage(fields: dict[str, Any]) -> Usage | ErrorRecord | None:
    used, cost = fields.get("usage"), fields.get("cost")
    used = used if isinstance(used, dict) else {}
    if not used and cost is None:
        return None
    model = (fields.get("raw_data") or {}).get("model") if isinstance(fields.get("raw_data"), dict) else None
    return recorded_usage(
        model if isinstance(model, str) else "",
        used,
        "prompt_tokens",
        "completion_tokens",
        cost=cost,
        role="user" if fields.get("role") == "user" else "agent",
    )


def _scores(place: Place, row: dict[str, Any], end: str) -> tuple[Score, ...]:
    at = place.at("reward_info")
    found = read_optional_mapping(at, row.get("reward_info")) or {}
    parts = read_optional_mapping(at.at("reward_breakdown"), found.get("reward_breakdown")) or {}
    details = {key: value for key, value in found.items() if key != "reward"}
    details["simulation"] = {key: value for key, value in row.items() if key not in _TOLD}
    value = reward_value(at.at("reward"), found.get("reward"))
    whole = recorded_score(REWARD, value, _reason(value, found, end), details)
    named = [(name, reward_value(at.at("reward_breakdown", name), part)) for name, part in parts.items()]
    return (whole, *(recorded_score(Criterion(f"reward_{name.lower()}"), part) for name, part in named))


def _reason(value: float | None, found: dict[str, Any], end: str) -> str:
    if value == 1:
        return "Everything the reward is made of is as it should be."
    if end not in ("user_stop", "agent_stop", ""):
        return f"The simulation ended by {end}."
    failed = [what for what, is_met in _checks(found) if not is_met]
    return f"Not as it should be: {'; '.join(failed)}."[:2000] if failed else ""


def _checks(found: dict[str, Any]) -> list[tuple[str, bool]]:
    """The checks, and their results."""
    checks = [("the database", _held(found.get("db_check"), "db_match"))]
    for key, what, flag in (
        ("env_assertions", "an assertion about the environment", "met"),
        ("communicate_checks", "said", "met"),
        ("nl_assertions", "judged", "met"),
    ):
        rows = found.get(key)
        for row in rows if isinstance(rows, list) else ():
            told = row.get("info", row.get("nl_assertion")) if isinstance(row, dict) else None
            checks.append((f"{what}: {told}" if isinstance(told, str) else what, _held(row, flag)))
    return checks


def _held(row: Any, flag: str) -> bool:
    return not (isinstance(row, dict) and row.get(flag) is False)
