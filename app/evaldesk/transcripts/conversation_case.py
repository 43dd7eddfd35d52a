"""A recorded conversation as a case, and a case as the conversation that it expects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.model import Case, Expected, JsonObject, ToolCall, Turn, TurnRecord
from evaldesk.model.chat import user_messages
from evaldesk.model.json_text import json_or_text
from evaldesk.transcripts.adk import unwrap_result, wrap_result

RESPONSES = "tool_responses"
"""ADK's place for the results of tools in a recorded turn."""


def case_of(name: str, turns: Sequence[TurnRecord], systems: Sequence[str], extra: JsonObject) -> Case:
    """The case that expects the recorded events; a conversation without any call asserts nothing of tools."""
    case_turns = [turn_expecting(turn, keeps_ids=False) for turn in turns]
    if not any(turn.expected.tool_calls for turn in case_turns):
        case_turns = [replace(turn, expected=replace(turn.expected, tool_calls=None)) for turn in case_turns]
    prompt = {"system_prompt": "\n\n".join(systems)} if systems else {}
    return Case(name, turns=tuple(case_turns), extra={**prompt, **extra})


def check_conversation(case: Case) -> None:
    """Raise FormatError for a case that is more than a conversation."""
    where = f"case {case.id!r}"
    if case.scenario is not None:
        raise FormatError(f"{where} is a scenario; a list of messages holds a conversation")
    if case.initial_state or case.final_state is not None:
        raise FormatError(f"{where} has a state; a list of messages has no word for it")
    for number, turn in enumerate(case.turns, 1):
        expected = turn.expected
        if expected.intermediate and expected.reference is None:
            raise FormatError(f"{where}, turn {number}: messages before an answer, and no answer after them")
        if number > 1 and not (turn.query or turn.media):
            raise FormatError(f"{where}, turn {number}: no message of the user parts it from the turn before")
        if number < len(case.turns) and not expected.tool_calls and expected.reference is None:
            raise FormatError(f"{where}, turn {number}: neither a call nor an answer parts it from the next message")


def write_openai(case: Case) -> dict[str, Any]:
    """The conversation as a list of messages of OpenAI."""
    prompt = case.extra.get("system_prompt")
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}] if isinstance(prompt, str) else []
    for number, turn in enumerate(case.turns):
        messages += map(dict, user_messages(turn.query, turn.media))
        messages += [{"role": "assistant", "content": text} for _, text in turn.expected.intermediate]
        for call_id, call, result in calls_with_results(number, turn):
            arguments = json.dumps(dict(call.args), ensure_ascii=False)
            function = {"name": call.name, "arguments": arguments}
            calls = [{"id": call_id, "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            if result is not None:
                messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
        if turn.expected.reference is not None:
            messages.append({"role": "assistant", "content": turn.expected.reference})
    return {"messages": messages}


def calls_with_results(number: int, turn: Turn) -> Iterator[tuple[str, ToolCall, str | None]]:
    """The calls of a turn with ids made for the file, and the tools' results where they are known."""
    raw = turn.expected.extra.get(RESPONSES)
    responses = [each for each in raw if isinstance(each, dict)] if isinstance(raw, list) else []
    for index, call in enumerate(turn.expected.tool_calls or ()):
        ids = (call.id, None)
        fits = [each for each in responses if each.get("name") == call.name and (not call.id or each.get("id") in ids)]
        own = min(fits, key=lambda each: each.get("id") != call.id, default=None)
        if own is not None:
            responses.remove(own)
        yield f"call_{number}_{index}", call, None if own is None else json_or_text(unwrap_result(own.get("response")))


def turn_expecting(record: TurnRecord, *, keeps_ids: bool = True) -> Turn:
    """The turn that expects its recorded calls and answers, with the results of tools beside them."""
    call_results = [(event.call, event.result) for event in record.own_events if event.kind == "tool_result"]
    responses: list[Any] = [
        {"name": call.name, "response": wrap_result(result), **({"id": call.id} if call.id and keeps_ids else {})}
        for call, result in call_results
        if call and call.name
    ]
    calls = record.known_calls
    if calls is not None:
        calls = tuple(ToolCall(call.name, call.args, call.id if keeps_ids else None) for call in calls)
    extra = {RESPONSES: responses} if responses else {}
    return Turn(record.query, Expected(calls, record.intermediate, record.answer or None, extra), media=record.media)
