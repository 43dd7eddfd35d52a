"""Tool calls and results of an agent from the model requests of its own client."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evaldesk.llm.retry_events import HttpCall, body_of
from evaldesk.model import Event
from evaldesk.transcripts.messages.turns import Message, TurnEvents
from evaldesk.transcripts.model_exchanges import Exchange, read_request
from evaldesk.transcripts.plumbing import ENDING_TOOLS, is_answer_call


@dataclass(frozen=True, slots=True)
class WireCall:
    """A model call that was seen on its way. `at_ms` is the time of its answer in the turn."""

    at_ms: float
    http: HttpCall
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class WireEvents:
    """The tool calls and results of the agent.

    `within` has the tool that made a model call, by the `id()` of the HttpCall.
    """

    events: Sequence[Event] = ()
    within: Mapping[int, str] = field(default_factory=dict)


def wire_events(calls: Sequence[WireCall], other_events: Iterable[Event]) -> WireEvents:
    """The tool calls that models answered with, and the results in the requests that follow.

    A call in `other_events` of the same name is the same call, and is not repeated. The calls of an agent inside of a
    tool are not the agent's own. Not a tool call: an answer in the shape of a call, which is one without a result where
    the request asks for this function alone, or where it ends an agent by its name (`final_answer`).
    """
    known_names = Counter(event.call.name for event in other_events if event.kind == "tool_call" and event.call)
    within = _within(calls)
    own_calls = [call for call in calls if id(call.http) not in within]
    result_ids = {result.call_id for call in own_calls for result in call.exchange.results}
    turn = TurnEvents()
    events: list[Event] = []
    for call in own_calls:
        results = [result for result in call.exchange.results if _answers_open_call(result, turn)]
        answer_calls = []
        for tool_call in call.exchange.answer.calls:
            if tool_call.id not in result_ids and is_answer_call(tool_call.name, body_of(call.http.request)):
                continue
            known_names[tool_call.name] -= 1
            if known_names[tool_call.name] < 0:
                answer_calls.append(tool_call)
        sent_ms = max(call.at_ms - call.http.duration_ms, 0.0)
        events += _new_events(turn, results, sent_ms)
        events += _new_events(turn, [Message("agent", calls=tuple(answer_calls))], call.at_ms)
    return WireEvents(events, within)


def without_answer_calls(events: Sequence[Event]) -> Sequence[Event]:
    """The events of spans without the call by which an agent ended: one of an ending tool after the last model call."""
    last = max((at for at, event in enumerate(events) if event.usage), default=-1)
    return [
        event
        for at, event in enumerate(events)
        if at < last or last < 0 or not (event.call and event.call.name in ENDING_TOOLS)
    ]


def _new_events(turn: TurnEvents, messages: Iterable[Message], at_ms: float) -> Iterator[Event]:
    n_before = len(turn.events)
    for message in messages:
        turn.add(message)
    return (replace(event, at_ms=round(at_ms, 3)) for event in turn.events[n_before:])


def _answers_open_call(result: Message, turn: TurnEvents) -> bool:
    """Whether a result belongs to a call without one; a request that is sent again repeats its results."""
    if result.call_id is None:  # Gemini names no ids: by the name of the tool
        return any(call.name == result.author for call in turn.open_calls.values())
    return result.call_id in turn.open_calls


def _within(calls: Sequence[WireCall]) -> Mapping[int, str]:
    """The open tool of each model call in another conversation than the one that called the tool."""
    within: dict[int, str] = {}
    open_names: dict[str, str] = {}
    conversation = ""
    for call in calls:
        own = _conversation(call.http)
        has_result = any(result.call_id in open_names for result in call.exchange.results)
        if open_names and own != conversation and not has_result:
            within[id(call.http)] = next(reversed(open_names.values()))
            continue
        for result in call.exchange.results:
            open_names.pop(result.call_id or "", None)
        conversation = own
        request = body_of(call.http.request)
        tool_calls = [each for each in call.exchange.answer.calls if not is_answer_call(each.name, request)]
        open_names |= {each.id: each.name for each in tool_calls if each.id}
    return within


def _conversation(call: HttpCall) -> str:
    """The first message of a request: the same in all requests of one agent, another in those of an inner agent."""
    messages = read_request(body_of(call.request)).messages
    return json.dumps(messages[:1], sort_keys=True, default=str)
