"""Events of OpenHands as messages: the present ones, those before 2025 without ids, and those of its SDK (V1).

(OpenHands openhands/events/serialization/event.py; software-agent-sdk openhands/sdk/event)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from evaldesk.errors import NAME_LIMIT, REASON_LIMIT
from evaldesk.model import JsonObject, ToolCall
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_list, read_mapping, read_optional_mapping, read_optional_text, text_of
from evaldesk.transcripts.messages.chat import read_arguments, read_content
from evaldesk.transcripts.messages.turns import Message
from evaldesk.transcripts.recorded import iso_ms

# The harness's additions to the arguments of every action.
_BESIDE_ARGS = {
    *("action", "source", "id", "timestamp", "message", "thought", "hidden", "blocking", "is_static", "is_input"),
    *("confirmation_state", "is_confirmed", "action_risk", "security_risk", "keep_prompt", "llm_metrics"),
    *("tool_call_metadata", "timeout", "kernel_init_code", "args"),
}
CONVERSATION_ERROR = "ConversationErrorEvent"
"""The kind of the event with which a loop of the SDK ends in an error, or at its limit."""
_STATES = {"agent_state_changed", "change_agent_state", "null"}


def read_history(place: JsonPosition, raw: Any, notes: Notes) -> list[Message]:
    """The messages of a list of events, or of pairs of an action and its observation. Raises FormatError."""
    messages: list[Message] = []
    for here, event in _events(place, raw):
        messages += read_event(here, event, notes)
    return messages


def response_times(place: JsonPosition, raw: Any) -> dict[str, float]:
    """When the first event of each response of the model came, in milliseconds since 1970 by the id of the response."""
    times: dict[str, float] = {}
    for _, event in _events(place, raw):
        metadata, at_ms = event.get("tool_call_metadata"), iso_ms(event.get("timestamp"))
        response = metadata.get("model_response") if isinstance(metadata, dict) else None
        name = response.get("id") if isinstance(response, dict) else event.get("llm_response_id")
        if isinstance(name, str) and at_ms is not None:
            times.setdefault(name, at_ms)
    return times


def read_event(place: JsonPosition, event: dict[str, Any], notes: Notes) -> Iterator[Message]:
    """The messages of one event, of the SDK or of the versions before it. Raises FormatError."""
    reader = _sdk_event if isinstance(event.get("kind"), str) else _event
    return reader(place, event, notes)


def _events(place: JsonPosition, raw: Any) -> Iterator[tuple[JsonPosition, dict[str, Any]]]:
    """Each event with its place; pairs are taken apart."""
    for index, item in enumerate(read_list(place, raw, lambda _, value: value)):
        here = place.at(index)
        if not isinstance(item, list):
            yield here, read_mapping(here, item)
            continue
        for number, half in enumerate(item):
            if half is not None:
                yield here.at(number), read_mapping(here.at(number), half)


def _event(place: JsonPosition, event: dict[str, Any], notes: Notes) -> Iterator[Message]:
    at_ms = iso_ms(event.get("timestamp"))
    args = read_optional_mapping(place.at("args"), event.get("args"))
    args = {key: value for key, value in event.items() if key not in _BESIDE_ARGS} if args is None else args
    kind = read_optional_text(place.at("action"), event.get("action"))
    if kind is None:
        yield from _observation(place, event, at_ms)
    elif kind in _STATES:
        return
    elif kind == "system":
        yield Message("system", _words(args, event, "content"), at_ms=at_ms)
    elif kind == "message":
        is_agent = event.get("source") == "agent"
        yield Message("agent" if is_agent else "user", _words(args, event, "content"), at_ms=at_ms)
    elif kind == "finish":
        call, _ = _call(place, event, args, kind)
        yield Message("agent", calls=(call,), at_ms=at_ms)
        yield Message("agent", _words(args, event, "final_thought", "thought"), at_ms=at_ms)
    elif kind == "think":
        call, _ = _call(place, event, args, kind)
        yield Message("agent", calls=(call if call.args else replace(call, args=_thought(args, event)),), at_ms=at_ms)
    elif kind == "recall":
        yield Message("system", f"recalled: {_words({}, event)}"[:REASON_LIMIT], at_ms=at_ms)
    else:
        call, text = _call(place, event, args, kind)
        yield Message(
            "agent", text or text_of(args.get("thought")) or text_of(event.get("thought")), calls=(call,), at_ms=at_ms
        )


def _observation(place: JsonPosition, event: dict[str, Any], at_ms: float | None) -> Iterator[Message]:
    kind = read_optional_text(place.at("observation"), event.get("observation")) or ""
    content = text_of(event.get("content"))
    if kind in _STATES:
        return
    if kind == "recall":
        yield Message("system", content, at_ms=at_ms)
    elif kind == "error" and event.get("cause") is None:
        # Nothing is its cause: OpenHands' own pairing of events drops it.
        yield Message("system", f"error: {content}", at_ms=at_ms)
    else:
        is_error = event.get("success") is False or kind == "error"
        name, call_id = _function(event) or kind, _call_id(event, "cause")
        yield Message("tool", author=name, call_id=call_id, result=content, is_error=is_error, at_ms=at_ms)


def _call(place: JsonPosition, event: dict[str, Any], args: dict[str, Any], kind: str) -> tuple[ToolCall, str]:
    """The call as the model made it, and the words before it; else the action that the harness made of it."""
    raw = read_optional_mapping(place.at("tool_call_metadata"), event.get("tool_call_metadata")) or {}
    name, call_id = _function(event), _call_id(event, "id")
    for message in _choices(raw):
        calls = message.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else []):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and str(call.get("id")) == call_id:
                call_args, extra = read_arguments(place.at("tool_call_metadata", "model_response"), _json(function))
                words = text_of(message.get("content")) if number == 0 else ""
                return ToolCall(name or kind, call_args, call_id, extra), words
    own = {key: value for key, value in args.items() if key not in _BESIDE_ARGS}
    return ToolCall(name or kind, own, call_id), ""


def _sdk_event(place: JsonPosition, event: dict[str, Any], notes: Notes) -> Iterator[Message]:
    kind, at_ms = event["kind"], iso_ms(event.get("timestamp"))
    if kind == "SystemPromptEvent":
        prompt = event.get("system_prompt")
        text = prompt.get("text") if isinstance(prompt, dict) else prompt
        yield Message("system", text_of(text), at_ms=at_ms)
    elif kind == "MessageEvent":
        raw = read_optional_mapping(place.at("llm_message"), event.get("llm_message")) or {}
        text, thought = read_content(place.at("llm_message", "content"), raw.get("content"), notes)
        yield Message("agent" if event.get("source") == "agent" else "user", text, thought=thought, at_ms=at_ms)
    elif kind == "ActionEvent":
        yield from _sdk_action(place, event, notes, at_ms)
    elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
        yield _sdk_result(place, event, notes, at_ms)
    elif kind == CONVERSATION_ERROR:
        yield Message("system", f"error: {failure_of(event)}", at_ms=at_ms)
    elif kind != "ConversationStateUpdateEvent":
        notes.refuse(f"an event of kind {kind[:NAME_LIMIT]!r}", place)


def failure_of(event: dict[str, Any]) -> str:
    """Why the conversation broke off, in the words of its event."""
    return (
        ": ".join(filter(None, (text_of(event.get("code")), text_of(event.get("detail")))))
        or "the conversation broke off"
    )


def _sdk_action(place: JsonPosition, event: dict[str, Any], notes: Notes, at_ms: float | None) -> Iterator[Message]:
    """The call with the words before it, and the agent's last message as it finishes."""
    text, thought = read_content(place.at("thought"), event.get("thought"), notes)
    name = read_optional_text(place.at("tool_name"), event.get("tool_name")) or "tool"
    thought = text_of(event.get("reasoning_content")) or thought
    raw = event.get("tool_call")
    raw = raw if isinstance(raw, dict) else {}
    function = raw.get("function")
    fields = function if isinstance(function, dict) else raw
    args, extra = read_arguments(place.at("tool_call", "arguments"), _json(fields))
    if not args and isinstance(event.get("action"), dict):
        args = {key: value for key, value in event["action"].items() if key != "kind"}
    call = ToolCall(name, args, text_of(event.get("tool_call_id")) or None, extra)
    yield Message("agent", text, thought=thought, calls=(call,), at_ms=at_ms)
    if name == "finish":
        yield Message("agent", text_of(args.get("message")), at_ms=at_ms)


def _sdk_result(place: JsonPosition, event: dict[str, Any], notes: Notes, at_ms: float | None) -> Message:
    raw = event.get("observation")
    raw = raw if isinstance(raw, dict) else {}
    text, _ = read_content(place.at("observation", "content"), raw.get("content"), notes)
    is_error = bool(raw.get("is_error")) or event["kind"] != "ObservationEvent"
    return Message(
        "tool",
        author=text_of(event.get("tool_name")),
        call_id=text_of(event.get("tool_call_id")) or None,
        result=text or text_of(event.get("error")) or text_of(event.get("rejection_reason")),
        is_error=is_error,
        at_ms=at_ms,
    )


def _choices(metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages of the completion that an event carries."""
    response = metadata.get("model_response")
    choices: Sequence[Any] = response.get("choices") or () if isinstance(response, dict) else ()
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict):
            yield message


def _call_id(event: dict[str, Any], number: str) -> str | None:
    """The id that the model gave the call; else the number of the action, which its observation calls its cause."""
    metadata = event.get("tool_call_metadata")
    own_id = text_of(metadata.get("tool_call_id")) if isinstance(metadata, dict) else ""
    event_number = event.get(number)
    return own_id or (
        str(event_number) if isinstance(event_number, int) and not isinstance(event_number, bool) else None
    )


def _function(event: dict[str, Any]) -> str:
    metadata = event.get("tool_call_metadata")
    return text_of(metadata.get("function_name")) if isinstance(metadata, dict) else ""


def _json(function: dict[str, Any]) -> Any:
    raw = function.get("arguments")
    return raw if isinstance(raw, str | dict) else None


def _words(args: dict[str, Any], event: dict[str, Any], *keys: str) -> str:
    """The first text there is, in the arguments, in the event of an old file, then the message that people see."""
    texts = (text_of(fields.get(key)) for fields in (args, event) for key in keys)
    return next(filter(None, texts), "") or text_of(event.get("message"))


def _thought(args: dict[str, Any], event: dict[str, Any]) -> JsonObject:
    thought = text_of(args.get("thought")) or text_of(event.get("thought"))
    return {"thought": thought} if thought else {}
