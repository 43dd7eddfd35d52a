"""The turns of a traced conversation, from the inputs and answers of its model calls and from the runs of its tools."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, TypeAlias

from evaldesk.errors import FormatError
from evaldesk.model import Criterion, ErrorRecord, Event, JsonObject, Prompts, Score, ToolCall, TurnRecord, Usage
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import parse_json
from evaldesk.reading.values import text_of
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.messages.turns import Message, TurnEvents, turns_of
from evaldesk.transcripts.model_exchanges import ModelRequest
from evaldesk.transcripts.otel.span_messages import model_of, sides_of, tools_and_settings, usage_of, value_of_blocks
from evaldesk.transcripts.otel.spans import EVALUATION, Span
from evaldesk.transcripts.otel.traces import (
    ANSWER_ALONE,
    Conversation,
    InnerCall,
    Step,
    Visit,
    conversations,
    kind_of_span,
)
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter
from evaldesk.transcripts.recorded import known_time, number_or_name, recorded_score
from evaldesk.transcripts.recorded_ends import recorded_error
from evaldesk.transcripts.recorded_sessions import Session

RESULT = "evaldesk.tool_result"
"""The attribute on the span of a tool for facts of its result: `{"is_alone", "is_text", "duration_ms"}`, as JSON."""

_ARGS = ("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value", "tool.parameters", "input")
_RESULT = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value", "output")
_NAME = ("gen_ai.tool.name", "tool.name")
_ID = ("gen_ai.tool.call.id", "tool.id", "tool_call.id")

_OF_DSPY = ".__call__"
_OF_LLAMA_INDEX = {"tool_name", "raw_input", "raw_output", "is_error"}
_OF_LANGCHAIN = {"type", "data"}
_OF_SMOLAGENTS = {"args", "sanitize_inputs_outputs", "kwargs"}

_MAX_OPEN = 500
"""Calls that wait for their results; of more, the oldest never had one."""

Print: TypeAlias = tuple[str, str]


def session_of(conversation: Conversation) -> Session:
    """The conversation with its turns, and why it broke off, if its last visit did."""
    telling = _TurnBuilder()
    for visit in conversation.visits:
        telling.add(visit)
    error = _error(conversation.visits[-1])
    note = next((visit.note for visit in conversation.visits if visit.note), None)
    scores = tuple(_evaluations(conversation))
    if not any(visit.steps for visit in conversation.visits):  # of a trial without a turn, which we wrote
        inner = (usage_of(each.span, each.span.end_ms) for visit in conversation.visits for each in visit.inner)
        return Session(
            conversation.id,
            (),
            error,
            usages=tuple(filter(None, inner)),
            scores=scores,
            note=json_value(note),
            case_id=conversation.case_id,
        )
    turns = turns_of(telling.messages, error)
    if any(ANSWER_ALONE in step.span.attributes for visit in conversation.visits for step in visit.steps):
        turns = tuple(replace(turn, captures=("answers",)) for turn in turns)
    spans = [span for visit in conversation.visits for span in _calls_of(visit)]
    prompts = _prompts(turns, spans)
    return Session(
        conversation.id,
        turns,
        error,
        scores=scores,
        note=json_value(note),
        prompts=prompts,
        case_id=conversation.case_id,
    )


def _calls_of(visit: Visit) -> Iterator[Span]:
    yield from (step.span for step in visit.steps if step.call)
    yield from (each.span for each in visit.inner)


def _prompts(turns: Sequence[TurnRecord], spans: Sequence[Span]) -> Prompts | None:
    """How the models of the turns were asked. A call is in the turn that tells its tokens, else in that of the last."""
    places_by_tokens: dict[tuple[int, int], deque[CallPlace]] = {}
    for index, turn in enumerate(turns):
        for event in turn.events:
            if usage := event.usage:
                places_by_tokens.setdefault((usage.tokens_in, usage.tokens_out), deque()).append(
                    CallPlace(index, event.at_ms)
                )
    writer, place = PromptWriter(), CallPlace(0)
    for _, usage, request, answer in sent_calls(spans):
        if places := places_by_tokens.get((usage.tokens_in, usage.tokens_out)):
            place = places.popleft()
        writer.add(place, usage, request, answer)
    return writer.prompts()


def events_of_turn(spans: Sequence[Span]) -> tuple[Event, ...]:
    """The events of a turn that the spans are of, as they are imported, without the messages that began it.

    Times are those of the spans.
    """
    builder = _TurnBuilder()
    for conversation in conversations(spans, Notes()):
        for visit in conversation.visits:
            builder.add(visit)
    turn = TurnEvents(began_ms=0.0)
    for message in builder.span_messages:
        turn.add(message)
    return tuple(turn.events)


def sent_calls(spans: Sequence[Span]) -> Iterator[tuple[float, Usage, ModelRequest, Any]]:
    """The model calls of spans as they stand there: when each ended, its tokens, its messages and its answer.

    A call inside of another is the same, told by two instruments.
    """
    models = {span.span_id: span for span in spans if kind_of_span(span) == "model"}
    for span in sorted(models.values(), key=lambda span: span.end_ms):
        try:
            sides = sides_of(span)
        except FormatError:
            continue
        if sides is None or span.parent_id in models:
            continue
        usage = usage_of(span, span.end_ms)
        duration_ms = max(0.0, round(span.end_ms - span.start_ms, 3))
        call_usage = usage if isinstance(usage, Usage) else Usage(model_of(span), duration_ms=duration_ms)
        yield span.end_ms, call_usage, ModelRequest(tuple(sides[0]), *tools_and_settings(span)), sides[1]


@dataclass(slots=True)
class _TurnBuilder:
    """The messages of a conversation while its visits come in; every model call repeats those before it.

    `span_messages` are the replies, calls and results of the spans, without messages that are only in a prompt.
    """

    messages: list[Message] = field(default_factory=list)
    span_messages: list[Message] = field(default_factory=list)
    prints: set[Print] = field(default_factory=set)
    systems: set[str] = field(default_factory=set)
    open_calls: list[ToolCall] = field(default_factory=list)
    has_asked: bool = False

    def add(self, visit: Visit) -> None:
        is_first = True
        steps = sorted(visit.steps, key=lambda step: (step.span.start_ms, step.call is None))
        inner = deque(visit.inner)
        opening = self._opening(steps)
        for message in opening:
            self._add_message(message, steps[0], may_ask=True)
        for step, following in zip_longest(steps, steps[1:]):
            while inner and inner[0].span.start_ms < step.span.start_ms:
                self._add_inner(inner.popleft())
            if step.call is None:
                self._add_tool(step)
                continue
            for message in self._systems(step.call.inputs):
                self._keep(replace(message, at_ms=step.span.start_ms))
            inputs, goes_on = self._new_messages(step.call.inputs)
            if is_first and opening:
                inputs = [each for each in inputs if each not in opening]
            # Without an agent around it, a later call asks when it continues the conversation, and is a helper's else.
            may_ask = is_first or (visit.top is None and goes_on)
            for message in inputs:
                self._add_message(message, step, may_ask=may_ask)
            # ADK's span of a model call ends only after the tools that it called.
            end_ms = min(step.span.end_ms, following.span.start_ms) if following else step.span.end_ms
            self._add_reply(step, end_ms)
            is_first = False
        for each in inner:
            self._add_inner(each)

    def _opening(self, steps: Sequence[Step]) -> Sequence[Message]:
        """What was said before a tool that ran ahead of the first model call, such as a retrieval; () else.

        Where the tool answers an earlier call, the first model call asks nothing of its own before it.
        """
        first = next((step for step in steps if step.call), None)
        if first is None or first.call is None or steps[0] is first:
            return ()
        if self._open(steps[0].span.first(*_ID), _tool_name(steps[0].span)):
            return ()
        for message in self._systems(first.call.inputs):
            self._keep(replace(message, at_ms=steps[0].span.start_ms))
        inputs, _ = self._new_messages(first.call.inputs)
        asked = [index for index, message in enumerate(inputs) if message.speaker == "user"]
        return inputs[: asked[-1] + 1] if asked else ()

    def _systems(self, inputs: Sequence[Message]) -> Iterator[Message]:
        """The system prompts that were not told before."""
        for message in inputs:
            if message.speaker == "system" and message.text not in self.systems:
                self.systems.add(message.text)
                yield message

    def _new_messages(self, inputs: Sequence[Message]) -> tuple[Sequence[Message], bool]:
        """The messages since the last reply that we know, and whether there is one."""
        messages = [message for message in inputs if message.speaker != "system"]
        known_indexes = [index for index, message in enumerate(messages) if _print(message) in self.prints]
        if known_indexes:
            return messages[known_indexes[-1] + 1 :], True
        if self.has_asked:
            replies = [index for index, message in enumerate(messages) if message.speaker == "agent"]
            messages = messages[replies[-1] + 1 :] if replies else messages
        return messages, False

    def _add_message(self, message: Message, step: Step, *, may_ask: bool) -> None:
        if message.speaker == "tool":
            self._add_result(message)
        elif message.speaker != "user" or may_ask:
            self.has_asked = self.has_asked or message.speaker == "user"
            self._keep(replace(message, at_ms=step.span.start_ms))

    def _add_reply(self, step: Step, ended_ms: float) -> None:
        outputs = step.call.outputs if step.call else ()
        usage = usage_of(step.span, ended_ms)
        replies = [message for message in outputs if message.speaker == "agent"] or (
            [Message("agent")] if usage else []
        )
        for index, message in enumerate(replies):
            self._happen(replace(message, author=step.agent, at_ms=ended_ms, usage=None if index else usage))

    def _add_inner(self, call: InnerCall) -> None:
        """A model call inside of a tool, or without messages, is its tokens."""
        usage, within = usage_of(call.span, call.span.end_ms), _tool_name(call.tool) if call.tool else ""
        if usage:
            self._happen(Message("agent", usage=usage, at_ms=call.span.end_ms, within=within))

    def _add_tool(self, step: Step) -> None:
        """The run of a tool answers its call; a call that no model was seen to make is told as well."""
        span = step.span
        name = _tool_name(span)
        call_id = span.first(*_ID)
        call = ToolCall(name, _args(span), call_id if isinstance(call_id, str) else None)
        own = json_value(span.attributes.get(RESULT))
        own = own if isinstance(own, dict) else {}
        if not own.get("is_alone"):
            if not (open_call := self._open(call_id, name)):
                self._happen(Message("agent", author=step.agent, calls=(call,), at_ms=span.start_ms))
            call = open_call or call
            self.open_calls.remove(call)
        took_ms = known_time(span.place, own.get("duration_ms"), Notes()) if own else span.end_ms - span.start_ms
        self._happen(
            Message(
                "tool",
                author=name,
                call_id=call.id,
                result=_result(span, own),
                is_error=span.error is not None or span.attributes.get("gen_ai.tool.status") == "error",
                at_ms=span.end_ms,
                duration_ms=None if took_ms is None else round(took_ms, 3),
            )
        )

    def _add_result(self, message: Message) -> None:
        """A model's input about a tool; nothing new when the tool's own span has it already."""
        call = self._open(message.call_id, message.author)
        if call is not None:
            self.open_calls.remove(call)
            is_made_here = any(call is earlier_call for earlier in self.span_messages for earlier_call in earlier.calls)
            (self._happen if is_made_here else self._keep)(message)

    def _open(self, call_id: Any, name: str) -> ToolCall | None:
        if call_id:
            return next((call for call in self.open_calls if call.id == call_id), None)
        return next((call for call in self.open_calls if not name or call.name == name), None)

    def _happen(self, message: Message) -> None:
        self.span_messages.append(message)
        self._keep(message)

    def _keep(self, message: Message) -> None:
        self.messages.append(message)
        self.open_calls = [*self.open_calls, *message.calls][-_MAX_OPEN:]
        if message.speaker == "agent" and (message.text or message.calls):
            self.prints.add(_print(message))


def _print(message: Message) -> Print:
    """The key that tells replies apart; ids are left out, since not every instrument repeats them."""
    if message.speaker != "agent":
        return "", ""
    return message.text, json.dumps([[call.name, call.args] for call in message.calls], sort_keys=True)


def _evaluations(conversation: Conversation) -> Iterator[Score]:
    """The scores of the traced system's evaluators, one for each of their names; they state no threshold."""
    spans = [step.span for visit in conversation.visits for step in visit.steps]
    tops = [visit.top for visit in conversation.visits if visit.top]
    names: set[str] = set()
    for event in (event for span in (*tops, *spans) for event in span.events if event.name == EVALUATION):
        name = event.attributes.get("gen_ai.evaluation.name")
        value, why = (event.attributes.get(f"gen_ai.evaluation.{key}") for key in ("score.value", "explanation"))
        if isinstance(name, str) and name and name not in names:
            names.add(name)
            label = event.attributes.get("gen_ai.evaluation.score.label")
            yield recorded_score(Criterion(name), number_or_name(value), text_of(why) or text_of(label))


def _error(visit: Visit) -> ErrorRecord | None:
    last = next((step.span for step in visit.steps[-1:] if step.call), None)
    message = (visit.top.error if visit.top else None) or (last.error if last else None)
    return recorded_error(message) if message else None


def _tool_name(span: Span) -> str:
    return str(span.first(*_NAME) or span.name.removeprefix("execute_tool ").removesuffix(_OF_DSPY))


def _args(span: Span) -> JsonObject:
    value = json_value(span.first(*_ARGS))
    if value is None:
        value = json_value(_of_event(span, "gen_ai.tool.message", "content"))
    if isinstance(value, dict) and set(value) == _OF_SMOLAGENTS and not value["args"]:
        value = value["kwargs"]
    if isinstance(value, dict) and set(value) == {"kwargs"} and isinstance(value["kwargs"], dict):  # of DSPy
        value = value["kwargs"]
    return value if isinstance(value, dict) else {} if value is None else {"input": value}


def _result(span: Span, own: JsonObject) -> Any:
    raw = span.first(*_RESULT)
    if own and isinstance(raw, str):
        with suppress(FormatError):
            return raw if own.get("is_text") else parse_json(raw.encode("utf-8", "surrogatepass"), source="").value
    value = json_value(raw)
    if isinstance(value, dict) and set(value) >= _OF_LLAMA_INDEX:
        return value["raw_output"]
    if isinstance(value, dict) and set(value) == _OF_LANGCHAIN and value["type"] == "tool":
        message = value["data"]
        return json_value(message.get("content")) if isinstance(message, dict) else message
    if value is None:
        value = value_of_blocks(json_value(_of_event(span, "gen_ai.choice", "message")))
    return span.error if value is None and not own else value


def _of_event(span: Span, name: str, key: str) -> Any:
    """The value that a span, of Strands say, has on an event and not among its attributes."""
    return next((event.attributes.get(key) for event in span.events if event.name == name), None)
