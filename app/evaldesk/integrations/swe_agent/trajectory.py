"""The format "swe-agent": a `.traj` of SWE-agent, one attempt at one issue. (SWE-agent/SWE-agent)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.model import Case, ErrorRecord, EvalSet, RecordedPlan, ToolCall, Turn, Usage
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition, parse_recorded_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_mapping, read_optional_text
from evaldesk.transcripts.messages.chat import read_chat_message
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import RecordedRun, file_stem, recorded_trial, recorded_usage
from evaldesk.transcripts.recorded_ends import is_accident, recorded_error


class SweAgent(ReadOnly):
    """The format "swe-agent"."""

    title = "SWE-agent trajectory"
    suffixes = (".traj",)
    instead = "write a run as atif"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with a trajectory and the history of messages."""
        document = peek(data).document
        return isinstance(document, dict) and {"trajectory", "history"} <= set(document)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """One case and one trial. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        place = JsonPosition(document)
        return _build_import(place, read_mapping(place, document.value), file_stem(source))


def _build_import(place: JsonPosition, trajectory: dict[str, Any], name: str) -> Imported:
    notes = Notes()
    history = read_list(
        place.at("history"), trajectory.get("history", ABSENT), lambda at, raw: (at, read_mapping(at, raw))
    )
    turns = turns_of(_messages(history, notes), tells_results=True)
    info = read_optional_mapping(place.at("info"), trajectory.get("info")) or {}
    result = {key: value for key, value in info.items() if key != "model_stats"}
    if turns and result:
        turns = (*turns[:-1], replace(turns[-1], state_after=result))
    environment = read_optional_text(place.at("environment"), trajectory.get("environment"))
    extra = {"environment": environment} if environment else {}
    case = Case(name, tuple(Turn(turn.query) for turn in turns), extra=extra)
    stop = read_optional_text(place.at("info", "exit_status"), info.get("exit_status")) or ""
    is_broken = is_accident("swe-agent", stop.partition(" ")[0])
    trial = recorded_trial(
        turns,
        error=recorded_error(f"SWE-agent ended the attempt: {stop}") if is_broken else None,
        stop_reason=stop,
        usages=_usages(info.get("model_stats")),
    )
    plan = RecordedPlan(1, status="finished" if stop else "unfinished")
    run = RecordedRun(name, "SWE-agent", (case,), (trial,), plan=plan)
    understood_words = (
        "What the agent submitted and how it ended is the state after its last turn; nothing is asserted.",
    )
    return Imported("swe-agent", EvalSet(name, cases=(case,)), (run,), understood_words, (), notes.sentences)


def _messages(history: tuple[tuple[JsonPosition, dict[str, Any]], ...], notes: Notes) -> Iterator[Message]:
    """The history; all that the environment says after the task is an observation, also where the user says it."""
    has_task = False
    for place, raw in history:
        if raw.get("is_demo"):
            notes.refuse("a demonstration before the task", place)
            continue
        message = read_chat_message(place, raw, notes)
        if message.speaker == "agent" and not message.calls and isinstance(raw.get("action"), str):
            message = replace(message, calls=(ToolCall("action", {"command": raw["action"]}),))
        elif message.speaker == "tool":
            ids = raw.get("tool_call_ids")
            first = ids[0] if isinstance(ids, list) and ids else None
            message = replace(message, call_id=first if isinstance(first, str) else message.call_id)
        elif message.speaker == "user" and has_task and raw.get("message_type") == "observation":
            message = Message("tool", result=message.text)
        has_task = has_task or message.speaker == "user"
        yield message


def _usages(raw: Any) -> tuple[Usage | ErrorRecord, ...]:
    """The sum of the model calls; a replay counts no tokens, and its cost of 0 is none."""
    stats = raw if isinstance(raw, dict) else {}
    if not stats.get("tokens_sent"):
        return ()
    cost = stats.get("instance_cost", stats.get("total_cost"))
    return (recorded_usage("", stats, "tokens_sent", "tokens_received", cost=cost),)
