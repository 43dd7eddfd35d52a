"""The format "atif": trajectories in the Agent Trajectory Interchange Format of Harbor, one a file or one a line.

(harbor docs/rfcs/0001-trajectory-format.md, versions 1.0 to 1.7)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any

from evaldesk.errors import NAME_LIMIT, FormatError
from evaldesk.formats.exchange import Imported, WritesRuns, imported_sessions
from evaldesk.model import ErrorRecord, Event, ToolCall, TrialResult, Usage
from evaldesk.model.conclusion import counted
from evaldesk.model.json_text import json_or_text
from evaldesk.reading.fields import read_values
from evaldesk.reading.json_lines import write_lines
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.shape import shown_extra
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_text,
)
from evaldesk.transcripts.messages.chat import NO_TEXT, read_arguments, read_content
from evaldesk.transcripts.messages.turns import Message, Speaker, turns_of
from evaldesk.transcripts.recorded import RecordedRun, file_stem, iso_ms, recorded_usage, spoken_turns
from evaldesk.transcripts.recorded_sessions import Session, run_of_sessions, session_note

_SOURCES: dict[str, Speaker] = {"system": "system", "user": "user", "agent": "agent"}
_TRAJECTORY_KEYS = ("schema_version", "session_id", "steps", "final_metrics")


class Atif(WritesRuns):
    """The format "atif"."""

    title = "ATIF trajectories"
    suffixes = (".atif.json", ".json", ".jsonl")
    no_evalset = "ATIF stores recorded trials, and an eval set has none; export a run"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a trajectory, or the first of several is one."""
        first = peek(data).first
        first = first[0] if isinstance(first, list) and first else first
        if not isinstance(first, dict):
            return False
        version = first.get("schema_version")
        return (isinstance(version, str) and version.startswith("ATIF")) or {"steps", "agent"} <= set(first)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case and a trial for each trajectory. Raises FormatError."""
        notes = Notes()
        trajectories = [_read(place, raw, notes) for place, raw in read_values(data, source)]
        n_cut = sum(one.is_cut for one in trajectories)
        if not trajectories:
            raise FormatError("the file has no trajectory", source=source)
        name = file_stem(source).removesuffix(".atif")
        run = run_of_sessions(name, trajectories[0].agent, trajectories[0].model, [one.session for one in trajectories])
        if n_cut:
            reason = f"{counted(n_cut, 'session')} of {len(trajectories):,} without the last steps"
            run = replace(run, plan=replace(run.plan, status="unfinished", reason=reason))
        return imported_sessions("atif", run, counted(len(trajectories), "recorded session"), notes)

    @staticmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """The trials of a run: one alone, or one a line. Raises FormatError."""
        rows = (_trajectory(run, result) for result in run.results)
        first = list(islice(rows, 2))
        if len(first) == 1:
            yield to_text(first[0], {"ends_with": "\n"}, run.name)
        else:
            yield from (write_lines((row,), run.name) for row in chain(first, rows))


@dataclass(frozen=True, slots=True)
class _Trajectory:
    agent: str
    model: str | None
    session: Session
    is_cut: bool


def _read(place: JsonPosition, raw: Any, notes: Notes) -> _Trajectory:
    n_lost = -notes.count(NO_TEXT)
    trajectory = read_mapping(place, raw)
    agent = read_mapping(place.at("agent"), trajectory.get("agent", ABSENT))
    model = read_optional_text(place.at("agent", "model_name"), agent.get("model_name"))
    steps = read_list(
        place.at("steps"), trajectory.get("steps", ABSENT), lambda at, step: _read_step(at, step, model, notes)
    )
    turns = turns_of((message for step in steps for message in step), tells_results=True)
    extra = notes.unknown_keys(place, trajectory, (*_TRAJECTORY_KEYS, "agent"))
    about = {key: value for key, value in agent.items() if key not in ("name", "model_name")}
    final = trajectory.get("final_metrics")
    total = _usage(final, model, "total_prompt_tokens", "total_completion_tokens", "total_cost_usd")
    n_steps = final.get("total_steps") if isinstance(final, dict) else None
    is_cut = (isinstance(n_steps, int) and n_steps > len(steps)) or bool(trajectory.get("continued_trajectory_ref"))
    counts_steps = any(turn.usages for turn in turns)
    root = extra.get("extra")
    note = root.get(NOTE) if isinstance(root, dict) else None
    if isinstance(root, dict) and note is not None:
        other_extra = {key: value for key, value in root.items() if key != NOTE}
        extra = {key: value for key, value in {**extra, "extra": other_extra}.items() if key != "extra" or other_extra}
    return _Trajectory(
        agent=read_text(place.at("agent", "name"), agent.get("name", ABSENT)),
        model=model,
        session=Session(
            id=read_optional_text(place.at("session_id"), trajectory.get("session_id")) or "trajectory",
            turns=turns,
            extra={**extra, **({"agent": about} if about else {})},
            usages=None if counts_steps or not total else (total,),
            note=note,
            n_lost=n_lost + notes.count(NO_TEXT),
        ),
        is_cut=is_cut,
    )


def _read_step(place: JsonPosition, raw: Any, model: str | None, notes: Notes) -> tuple[Message, ...]:
    """The messages of a step: the texts, and the results of the tools."""
    step = read_mapping(place, raw)
    source = read_text(place.at("source"), step.get("source", ABSENT))
    if step.get("is_copied_context") is True:  # of another trajectory, which has it as its own
        notes.refuse("a step that was copied from the context of another trajectory", place)
        return ()
    if source not in _SOURCES:
        raise place.at("source").error(f"unknown source {source[:NAME_LIMIT]!r}; known are system, user and agent")
    text, _ = read_content(place.at("message"), step.get("message"), notes)
    at_ms = iso_ms(step.get("timestamp"))
    speaker = _SOURCES[source]
    results = tuple(_results(place.at("observation"), step.get("observation"), notes))
    if speaker != "agent":
        return (Message(speaker, text, at_ms=at_ms), *results)
    name = read_optional_text(place.at("model_name"), step.get("model_name")) or model
    calls = read_list(place.at("tool_calls"), step.get("tool_calls") or [], _read_call)
    thought = read_optional_text(place.at("reasoning_content"), step.get("reasoning_content")) or ""
    usage = _usage(step.get("metrics"), name, "prompt_tokens", "completion_tokens", "cost_usd")
    reply = Message("agent", text, thought=thought, calls=calls, usage=usage, at_ms=at_ms)
    if results and not calls:
        # The spec allows observations of actions that are no tool calls.
        return (reply, *(Message("system", f"Observed: {message.result}") for message in results))
    return (reply, *results)


def _read_call(place: JsonPosition, raw: Any) -> ToolCall:
    call = read_mapping(place, raw)
    args, extra = read_arguments(place.at("arguments"), call.get("arguments"))
    call_id = read_optional_text(place.at("tool_call_id"), call.get("tool_call_id"))
    return ToolCall(read_text(place.at("function_name"), call.get("function_name", ABSENT)), args, call_id, extra)


def _results(place: JsonPosition, raw: Any, notes: Notes) -> Iterator[Message]:
    observation = read_optional_mapping(place, raw) or {}
    for index, item in enumerate(read_list(place.at("results"), observation.get("results") or [], read_mapping)):
        at = place.at("results", index)
        if item.get("subagent_trajectory_ref"):
            notes.refuse("a reference to the trajectory of a sub-agent", at.at("subagent_trajectory_ref"))
        text, _ = read_content(at.at("content"), item.get("content"), notes)
        call_id = read_optional_text(at.at("source_call_id"), item.get("source_call_id"))
        yield Message("tool", call_id=call_id, result=text)


def _usage(raw: Any, model: str | None, tokens_in: str, tokens_out: str, cost: str) -> Usage | ErrorRecord | None:
    if not isinstance(raw, dict) or not {tokens_in, tokens_out, cost} & set(raw):
        return None
    cached = raw.get("cached_tokens", raw.get("total_cached_tokens"))
    return recorded_usage(model or "", raw, tokens_in, tokens_out, cost=raw.get(cost), tokens_cached=cached)


NOTE = "evaldesk"
"""The key of our own note in the `extra` of a trajectory."""

_VERSION = "ATIF-v1.4"
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_GAP_MS = 1000.0


def _trajectory(run: RecordedRun, result: TrialResult) -> dict[str, Any]:
    case = run.cases[result.case_index]
    extra = dict(shown_extra(case.extra))
    about, root = extra.pop("agent", None), extra.pop("extra", None)
    note = {NOTE: session_note(run, result)}
    agent = {"name": run.agent, "version": "unknown", **({"model_name": run.model} if run.model else {})}
    steps = list(_steps(result))
    return {
        "schema_version": _VERSION,
        "session_id": f"{case.id}#{result.trial_index}" if result.trial_index else case.id,
        "agent": {**agent, **(about if isinstance(about, dict) else {})},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": _final(result, len(steps)),
        **extra,
        "extra": {**root, **note} if isinstance(root, dict) else note,
    }


def _final(result: TrialResult, n_steps: int) -> dict[str, Any]:
    totals: dict[str, Any] = {"total_steps": n_steps}
    if result.usages:
        totals["total_prompt_tokens"] = sum(usage.tokens_in for usage in result.usages)
        totals["total_completion_tokens"] = sum(usage.tokens_out for usage in result.usages)
        if cached := sum(usage.tokens_cached for usage in result.usages):
            totals["total_cached_tokens"] = cached
    if result.cost is not None:
        totals["total_cost_usd"] = result.cost
    return totals


def _steps(result: TrialResult) -> Iterator[dict[str, Any]]:
    """The steps of all turns; times count from 1970, since the trial's own date is not stored."""
    has_times = any(event.at_ms for turn in result.transcript.turns for event in turn.events)
    start_ms = 0.0
    for turn in spoken_turns(result.transcript.turns):
        writing = _Writing(start_ms if has_times else None)
        for event in turn.own_events:
            writing.add(event)
        yield from writing.steps
        start_ms += turn.duration_ms + _GAP_MS


@dataclass(slots=True)
class _Writing:
    """The steps of one turn while its events go by."""

    start_ms: float | None
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        if event.kind == "user_message" or (event.kind == "log" and event.author == "system"):
            self._begin("user" if event.kind == "user_message" else "system", event)["message"] = event.text
        elif event.kind == "usage" and event.usage:
            step = self._begin("agent", event)
            metrics = {"prompt_tokens": event.usage.tokens_in, "completion_tokens": event.usage.tokens_out}
            metrics |= {"cached_tokens": event.usage.tokens_cached} if event.usage.tokens_cached else {}
            step["metrics"] = metrics | ({} if event.usage.cost is None else {"cost_usd": event.usage.cost})
            step |= {"model_name": event.usage.model} if event.usage.model else {}
        elif event.kind == "log" and event.author == "thought":
            self._reply(event, "reasoning_content")["reasoning_content"] = event.text
        elif event.kind == "agent_message":
            self._reply(event, "tool_calls")["message"] = event.text
        elif event.kind == "tool_call" and event.call:
            step = self._reply(event)
            step.setdefault("tool_calls", []).append(_call(event, len(step.get("tool_calls", ()))))
        elif event.kind == "tool_result" and self.steps:
            content = json_or_text(event.result)
            row = {"source_call_id": event.call.id if event.call else None, "content": content}
            step = self._step_of(event.call.id if event.call else None)
            step.setdefault("observation", {"results": []})["results"].append(row)

    def _step_of(self, call_id: str | None) -> dict[str, Any]:
        """The step that made a call; a model call inside the tool may be a step after it."""
        if call_id is None:
            return self.steps[-1]
        ids = ((step, call["tool_call_id"]) for step in reversed(self.steps) for call in step.get("tool_calls", ()))
        return next((step for step, each in ids if each == call_id), self.steps[-1])

    def _reply(self, event: Event, *ends: str) -> dict[str, Any]:
        """The step of the reply under way; a new one after results, or when it has one of `ends` already."""
        last = self.steps[-1] if self.steps else {}
        is_open = last.get("source") == "agent" and "observation" not in last
        return last if is_open and not any(key in last for key in ends) else self._begin("agent", event)

    def _begin(self, source: str, event: Event) -> dict[str, Any]:
        step: dict[str, Any] = {"source": source, "message": ""}
        if self.start_ms is not None:
            time = _BEGINNING + timedelta(milliseconds=self.start_ms + event.at_ms)
            step = {"timestamp": time.isoformat(timespec="microseconds"), **step}
        self.steps.append(step)
        return step


def _call(event: Event, number: int) -> dict[str, Any]:
    """A call; the format wants an id for each."""
    call_id = event.call.id if event.call and event.call.id else f"call_{number + 1}"
    name, args = (event.call.name, dict(event.call.args)) if event.call else ("", {})
    return {"tool_call_id": call_id, "function_name": name, "arguments": args}
