"""The formats "otel" and "openinference": traces of agents, in the GenAI conventions of OpenTelemetry or OpenInference.

Each conversation becomes a case that expects the recorded events, and a trial of a run with these events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported, ReadOnly, WritesRuns, imported_sessions
from evaldesk.formats.large_traces import nothing_words
from evaldesk.model import Event, Score, ToolCall, Transcript, TrialResult, TurnRecord
from evaldesk.model.conclusion import counted
from evaldesk.model.json_text import json_or_text
from evaldesk.model.transcript import call_key
from evaldesk.reading.json_text import text_parts
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.transcripts.messages.chat import NO_TEXT, RAW_ARGS
from evaldesk.transcripts.otel.span_messages import model_of
from evaldesk.transcripts.otel.spans import EVALUATION, Span, is_trace, read_spans
from evaldesk.transcripts.otel.trace_turns import RESULT, session_of
from evaldesk.transcripts.otel.traces import NOTE, conversations
from evaldesk.transcripts.recorded import RecordedRun, file_stem, free_name, spoken_turns, told_turns
from evaldesk.transcripts.recorded_sessions import named_case_ids, run_of_sessions, session_note

_OPENINFERENCE = (b"openinference.span.kind", b"llm.input_messages", b"llm.output_messages", b'"openinference"')


class OpenTelemetry(WritesRuns):
    """The format "otel"."""

    title = "OpenTelemetry GenAI traces"
    suffixes = (".otel.json", ".json", ".jsonl")
    no_evalset = "traces store recorded trials, and an eval set has none; export a run"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a file of spans, and none of them is OpenInference's."""
        return _is_trace(data) and not any(mark in data for mark in _OPENINFERENCE)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case and a trial for each conversation. Raises FormatError."""
        return read_traces("otel", data, source)

    @staticmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """The traces of a run as OTLP JSON, a span a part. Raises FormatError."""
        resource = {"attributes": _pairs({"service.name": run.agent})}
        scope_spans = [{"scope": {"name": "evaldesk"}, "spans": _spans(run)}]
        return text_parts({"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}, run.name)


class OpenInference(ReadOnly):
    """The format "openinference"."""

    title = "OpenInference traces"
    suffixes = (".json", ".jsonl")
    instead = "write a run as otel, which Phoenix reads as well"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a file of spans with attributes of OpenInference."""
        return _is_trace(data) and any(mark in data for mark in _OPENINFERENCE)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case and a trial for each conversation. Raises FormatError."""
        return read_traces("openinference", data, source)


def read_traces(format_name: str, data: bytes, source: str) -> Imported:
    """The conversations in the spans of a file. Raises FormatError, also when no span is of an agent."""
    return imported_spans(format_name, read_spans(data, source), source)


def imported_spans(format_name: str, spans: Sequence[Span], source: str) -> Imported:
    """The conversations in spans of any file. Raises FormatError when no span is of an agent."""
    notes = Notes()
    agent_conversations = [
        each for each in conversations(spans, notes) if any(visit.steps or visit.note for visit in each.visits)
    ]
    if not agent_conversations:
        raise FormatError(nothing_words(len(spans), notes), source=source)
    name = file_stem(source).removesuffix(".otel")
    models = Counter(
        model_of(step.span) for one in agent_conversations for visit in one.visits for step in visit.steps if step.call
    )
    agents = Counter(one.agent for one in agent_conversations if one.agent)
    n_lost = notes.count(NO_TEXT)  # the spans do not tell of which conversation: each is looked at
    sessions = [replace(session_of(conversation), n_lost=n_lost) for conversation in agent_conversations]
    run = run_of_sessions(name, _commonest(agents), _commonest(models) or None, sessions)
    subject = f"{counted(len(agent_conversations), 'conversation')} in {counted(len(spans), 'span')}"
    return imported_sessions(format_name, run, subject, notes, named_case_ids(sessions))


def _commonest(names: Counter[str]) -> str:
    return next((name for name, _ in names.most_common(1)), "")


def _is_trace(data: bytes) -> bool:
    return is_trace(peek(data).first)


_GAP_MS = 1000.0
_STEP_MS = 0.001
"""Spans of one trace begin at least this far apart, so that their order shows in their times."""


def _spans(run: RecordedRun) -> Iterator[dict[str, Any]]:
    start_ms = 0.0
    used_names: dict[str, int] = {}
    for result in run.results:
        case_id = run.cases[result.case_index].id
        name = free_name(f"{case_id}#{result.trial_index}" if result.trial_index else case_id, used_names)
        # One after the other, so that the trials come back in this order.
        start_ms = yield from _of_trial(run, result, name, start_ms)


def _of_trial(
    run: RecordedRun, result: TrialResult, conversation: str, start_ms: float
) -> Generator[dict[str, Any], None, float]:
    """The spans of a trial; gives the time at which the next may begin."""
    if not result.transcript.turns:  # a span with its note, and the tokens
        result = replace(result, transcript=Transcript((TurnRecord(""),)))
    turns = spoken_turns(told_turns(result))
    open_calls: list[str] = []
    for number, turn in enumerate(turns):
        trace_id = sha256(f"{run.name}\0{conversation}\0{number}".encode()).hexdigest()[:32]
        trace = _Trace(run, conversation, trace_id, open_calls)
        top, *inner = trace.spans_of(turn, start_ms)
        if number == 0:
            top["attributes"] += _pairs({NOTE: json.dumps(session_note(run, result), ensure_ascii=False)})
        if number == len(turns) - 1:
            top["events"] = [_evaluation(score, top["endTimeUnixNano"]) for score in result.scores]
        yield from (top, *inner)
        start_ms = trace.now_ms + _GAP_MS
    return start_ms


def _evaluation(score: Score, at: str) -> dict[str, Any]:
    label = None if score.passed is None else "pass" if score.passed else "fail"
    attributes = {
        "gen_ai.evaluation.name": score.metric,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": label,
        "gen_ai.evaluation.explanation": score.reason or None,
    }
    return {"name": EVALUATION, "timeUnixNano": at, "attributes": _pairs(attributes)}


@dataclass(slots=True)
class _Trace:
    """The trace of one turn while its events go by."""

    run: RecordedRun
    conversation: str
    trace_id: str
    open_calls: list[str]
    now_ms: float = 0.0
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[Event] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)

    def spans_of(self, turn: TurnRecord, start_ms: float) -> list[dict[str, Any]]:
        self.now_ms = start_ms
        for event in turn.own_events:
            self._add(event, start_ms + event.at_ms)
        self._end_reply()
        self._end_inputs()
        author = next((event.author for event in turn.own_events if event.kind in ("agent_message", "tool_call")), "")
        author = author or self.run.agent
        top = self._span(f"invoke_agent {author}".rstrip(), start_ms, self.now_ms, "")
        top["attributes"] += _pairs({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": author})
        if turn.error:
            top["status"] = {"code": 2, "message": turn.error.message}
        for span in self.spans:
            span["parentSpanId"] = top["spanId"]
        return [top, *self.spans]

    def _add(self, event: Event, at_ms: float) -> None:
        is_reply = event.kind in ("usage", "agent_message", "tool_call") or event.author == "thought"
        if self.outputs:
            last = self.outputs[-1]
            speaks_after_calls = last.kind == "tool_call" and event.kind != "tool_call"  # a reply has its words first
            if not is_reply or event.kind == "usage" or event.at_ms != last.at_ms or speaks_after_calls:
                self._end_reply()
        if is_reply:
            self.outputs.append(event)
            self.open_calls += [call_key(event.call)] if event.call else []
            self.now_ms = max(self.now_ms, at_ms)
        elif event.kind == "user_message" or (event.kind == "log" and event.author == "system"):
            role = "user" if event.kind == "user_message" else "system"
            self.inputs.append({"role": role, "parts": [{"type": "text", "content": event.text}]})
        elif event.kind == "tool_result" and event.call:
            self._add_result(event, event.call, at_ms)

    def _add_result(self, event: Event, call: ToolCall, at_ms: float) -> None:
        is_alone = call_key(call) not in self.open_calls
        if not is_alone:
            self.open_calls.remove(call_key(call))
        if event.duration_ms is None and not (event.is_error or is_alone):
            part = {"type": "tool_call_response", "id": call.id, "response": event.result}
            self.inputs.append({"role": "tool", "parts": [part]})
            return
        if is_alone:
            self._end_inputs()
        start_ms = max(self.now_ms, at_ms - (event.duration_ms or 0.0))
        self.now_ms = max(start_ms, at_ms)
        about = {"is_alone": is_alone, "is_text": isinstance(event.result, str), "duration_ms": event.duration_ms}
        span = self._span(f"execute_tool {call.name}", start_ms, self.now_ms, "tool")
        span["attributes"] += _pairs(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.name,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.call.arguments": json.dumps(call.args, ensure_ascii=False),
                "gen_ai.tool.call.result": json_or_text(event.result),
                RESULT: json.dumps(about),
            }
        )
        if event.is_error:
            span["status"] = {"code": 2, "message": "the tool failed"}
        self.spans.append(span)

    def _end_reply(self) -> None:
        """Close the model call after its reply."""
        if self.outputs:
            self._add_model_call(self.outputs)
            self.inputs, self.outputs = [], []

    def _end_inputs(self) -> None:
        """Tell of the inputs that have no answer."""
        if self.inputs:
            self._add_model_call([])
            self.inputs = []

    def _add_model_call(self, outputs: Sequence[Event]) -> None:
        usage = next((event.usage for event in outputs if event.usage), None)
        last_start = self.spans[-1]["startTimeUnixNano"] if self.spans else "0"
        last_ms = int(last_start) / 1e6 + _STEP_MS if self.spans else 0.0
        start_ms = max(last_ms, self.now_ms - (usage.duration_ms if usage else 0.0))
        self.now_ms = max(self.now_ms, start_ms)
        model = usage.model if usage else self.run.model
        span = self._span(f"chat {model or ''}".rstrip(), start_ms, self.now_ms, "chat")
        span["attributes"] += _pairs(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": model,
                "gen_ai.usage.input_tokens": usage.tokens_in if usage else None,
                "gen_ai.usage.output_tokens": usage.tokens_out if usage else None,
                "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached or None if usage else None,
                "gen_ai.usage.reasoning.output_tokens": usage.tokens_reasoning or None if usage else None,
                "gen_ai.input.messages": json.dumps(self.inputs, ensure_ascii=False) if self.inputs else None,
                "gen_ai.output.messages": json.dumps([_reply(outputs)], ensure_ascii=False)
                if _parts(outputs)
                else None,
            }
        )
        self.spans.append(span)

    def _span(self, name: str, start_ms: float, end_ms: float, kind: str) -> dict[str, Any]:
        span_id = sha256(f"{self.trace_id}{kind}{len(self.spans)}".encode()).hexdigest()[:16]
        return {
            "traceId": self.trace_id,
            "spanId": span_id,
            "name": name,
            "startTimeUnixNano": str(round(start_ms * 1e6)),
            "endTimeUnixNano": str(round(end_ms * 1e6)),
            "attributes": _pairs({"gen_ai.conversation.id": self.conversation}),
        }


def _reply(outputs: Sequence[Event]) -> dict[str, Any]:
    return {"role": "assistant", "parts": _parts(outputs)}


def _parts(outputs: Sequence[Event]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for event in outputs:
        if event.kind == "log":
            parts.append({"type": "reasoning", "content": event.text})
        elif event.kind == "agent_message":
            parts.append({"type": "text", "content": event.text})
        elif event.call:
            arguments = event.call.extra.get(RAW_ARGS, event.call.args)
            parts.append({"type": "tool_call", "id": event.call.id, "name": event.call.name, "arguments": arguments})
    return parts


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP wraps them, without None values."""
    return [{"key": key, "value": _value(value)} for key, value in attributes.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
