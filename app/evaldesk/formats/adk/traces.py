"""The format "agents-cli-traces": cases with the answers of an agent, as `agents-cli eval generate` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.formats.adk.content import read_query
from evaldesk.formats.adk.dataset_case import (
    dataset_cases,
    is_answered,
    is_dataset_case,
    is_users,
    read_case,
    without_answers,
)
from evaldesk.formats.exchange import Imported, ReadOnly, imported_sessions
from evaldesk.model import Case, Event, TurnRecord
from evaldesk.model.media import Media
from evaldesk.model.transcript import AWAITING, last_stop
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition, parse_recorded_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_mapping
from evaldesk.transcripts.adk import AdkEvents, message_text, read_parts, spelled
from evaldesk.transcripts.recorded import RecordedRun, TrialRows, cut_short, ended_so, file_stem, iso_ms, recorded_trial


class AgentsCliTraces(ReadOnly):
    """`{"eval_cases": [{"prompt" or "agent_data", "responses"}]}`; responses beyond the last one are trials too."""

    title = "agents-cli traces"
    suffixes = (".traces.json", ".json")
    instead = "write the cases as agents-cli, or the run as adk-results"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with cases of a dataset, of which an agent has answered some."""
        cases = dataset_cases(peek(data).document)
        return any(map(is_answered, cases)) and any(map(is_dataset_case, cases))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with a trial for each response, and the cases as an eval set. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        raw = spelled(read_mapping(JsonPosition(document), document.value))
        place, rows, agents = JsonPosition(document).at("eval_cases"), TrialRows(), set[str]()
        for at, item in enumerate(read_list(place, raw.get("eval_cases"), read_mapping)):
            here = place.at(at)
            trace = read_trace(here, item)
            spot = rows.place(trace.case.id)
            rows.offer(spot, trace.case)
            agents.add(trace.agent)
            for number, turns in enumerate(trace.trials):
                rows.add(spot, recorded_trial(turns, stop_reason=last_stop(turns)), number)
        cases, results = rows.finish()
        name = next(iter(sorted(filter(None, agents))), "")
        run = RecordedRun(file_stem(source), name, cases, results, plan=rows.plan_of(len(cases)))
        imported = imported_sessions("agents-cli-traces", run, "these traces", Notes())
        return replace(imported, kept=rows.earlier_words)


@dataclass(frozen=True, slots=True)
class Trace:
    """A case with what the agent did, once for each of its responses; no trial where it did nothing."""

    case: Case
    trials: tuple[tuple[TurnRecord, ...], ...]
    agent: str = ""


def read_trace(place: JsonPosition, raw: Any) -> Trace:
    """The trace of a case. Raises FormatError."""
    values = spelled(read_mapping(place, raw))
    case = read_case(place, without_answers(raw))
    turns = _turns_of(place, values)
    answers = _answers(place, values)
    agent = _agent_of(values)
    if not turns or (turns[-1].query == "" and not turns[-1].events):
        return Trace(case, (), agent)
    if not answers:
        is_played = any(event.kind != "user_message" for event in turns[-1].events)
        return Trace(_expecting(case, turns), (turns,) if is_played else (), agent)
    trials = tuple(_answered(turns, answer, agent) for answer in answers)
    return Trace(_expecting(case, trials[0]), trials, agent)


def _expecting(case: Case, turns: Sequence[TurnRecord]) -> Case:
    """The case that expects the calls of the trace; its reference stays, or is the answer."""
    if case.scenario is not None or len(turns) != len(case.turns):
        return case
    new_turns = []
    for turn, record in zip(case.turns, turns, strict=True):
        expected = turn.expected
        calls = expected.tool_calls if expected.tool_calls is not None else record.tool_calls
        reference = expected.reference if expected.reference is not None else (record.answer or None)
        new_turns.append(replace(turn, expected=replace(expected, tool_calls=calls, reference=reference)))
    return replace(case, turns=tuple(new_turns))


def _turns_of(place: JsonPosition, values: dict[str, Any]) -> tuple[TurnRecord, ...]:
    """The turns of a trace: messages of the history, the prompt, and those in the events with what followed each."""
    records: list[_Turn] = []
    for at, item in enumerate(values.get("conversation_history") or ()):
        _add(records, place.at("conversation_history", at), item)
    if values.get("prompt") is not None:
        query, media = read_query(place.at("prompt"), values["prompt"])
        records.append(_Turn(query, media, []))
    agent_data = read_optional_mapping(place.at("agent_data"), values.get("agent_data")) or {}
    turns_at = place.at("agent_data", "turns")
    for at, turn in enumerate(read_list(turns_at, spelled(agent_data).get("turns") or [], read_mapping)):
        for number, event in enumerate(read_list(turns_at.at(at, "events"), turn.get("events") or [], read_mapping)):
            _add(records, turns_at.at(at, "events", number), event)
    return tuple(record.read() for record in records)


@dataclass(slots=True)
class _Turn:
    query: str
    media: tuple[Media, ...]
    events: list[tuple[JsonPosition, dict[str, Any]]]

    def read(self) -> TurnRecord:
        """The turn with its events, and its duration where they have times."""
        reader = AdkEvents()
        events = [Event("user_message", author="user", text=self.query)]
        times = [iso_ms(spelled(event).get("event_time")) for _, event in self.events]
        known_times = [time for time in times if time is not None]
        began = known_times[0] if known_times else 0.0
        for (place, event), time in zip(self.events, times, strict=True):
            at_ms = max(time - began, 0.0) if time is not None else 0.0
            events += [replace(each, at_ms=at_ms) for each in reader.read(place, event)]
        duration = max(known_times[-1] - began, 0.0) if known_times else 0.0
        record = TurnRecord(self.query, tuple(events), duration_ms=duration, media=self.media)
        if reader.requests:
            return ended_so(record, AWAITING, reader.requests.values())
        return cut_short(record)


def _add(records: list[_Turn], place: JsonPosition, raw: Any) -> None:
    event = read_mapping(place, raw)
    if is_users(event):
        query, media = read_query(place.at("content"), event["content"])
        records.append(_Turn(query, media, []))
    elif records:
        records[-1].events.append((place, event))


def _answers(place: JsonPosition, values: dict[str, Any]) -> list[str]:
    """The texts of the responses."""
    texts = []
    for at, item in enumerate(read_list(place.at("responses"), values.get("responses") or [], read_mapping)):
        here = place.at("responses", at, "response")
        content = item.get("response", ABSENT)
        texts.append(message_text(read_parts(here, content)) if isinstance(content, dict) else "")
    return texts


def _answered(turns: tuple[TurnRecord, ...], answer: str, agent: str) -> tuple[TurnRecord, ...]:
    """The turns, the last of which ends in this answer."""
    *before, last = turns
    if not answer or last.answer == answer:
        return turns
    events = tuple(event for event in last.events if event.kind != "agent_message" or event.text != last.answer)
    return (*before, replace(last, events=(*events, Event("agent_message", author=agent, text=answer))))


def _agent_of(values: dict[str, Any]) -> str:
    """The first agent of the trace."""
    agent_data = values.get("agent_data")
    agents = spelled(agent_data).get("agents") if isinstance(agent_data, dict) else None
    return next(iter(agents), "") if isinstance(agents, dict) else ""
