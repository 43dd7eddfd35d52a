"""Tool calls that are answered between the model and its client: requests that go on, and answers without a call.

One shape for OpenAI's chat completions and responses, Anthropic's messages and Gemini's generateContent, whole or
streamed. (decision 508)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from evaldesk.llm.apis import Api
from evaldesk.model import JsonValue, ToolCall
from evaldesk.transcripts.model_exchanges import Exchange

MESSAGES: Mapping[Api, str] = {"chat": "messages", "messages": "messages", "responses": "input", "generate": "contents"}
"""The field of a request with its messages."""
_UNSTABLE = frozenset({"cache_control"})
"""Keys of a message that clients move from one request to the next."""


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call of a model with its result."""

    call: ToolCall
    result: JsonValue
    is_error: bool = False

    @property
    def text(self) -> str:
        """The result as a client of OpenAI or Anthropic writes it."""
        text = self.result if isinstance(self.result, str) else json.dumps(self.result, ensure_ascii=False)
        return f"Error: {text}" if self.is_error and not text.startswith("Error:") else text


def messages_of(api: Api, request: Mapping[str, Any]) -> list[Any]:
    """The messages of a request; a text is one message of the user."""
    raw = request.get(MESSAGES[api])
    return list(raw) if isinstance(raw, list) else [{"role": "user", "content": raw}] if raw else []


def is_from_model(api: Api, message: Any) -> bool:
    """Whether a message of a request is a part of a model's answer."""
    if not isinstance(message, dict):
        return False
    if api == "responses" and message.get("type") in ("function_call", "reasoning"):
        return True
    return message.get("role") in ("assistant", "model")


def prefix_key(messages: object) -> str:
    """The messages, or a request, as a text that is the same where a client only moves its cache marks."""
    return json.dumps(_stable(messages), sort_keys=True, default=str)


def _stable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_stable(each) for each in value]
    if isinstance(value, dict):
        return {key: _stable(each) for key, each in value.items() if key not in _UNSTABLE}
    return value


def hidden_messages(api: Api, exchange: Exchange, answered: Sequence[AnsweredCall]) -> list[Any]:
    """The messages after which the model goes on: its own answer, and the results."""
    raw = exchange.raw_answer
    if api == "chat":  # an answer has empty fields that a request may not have
        raw = {key: value for key, value in raw.items() if value not in (None, [])}
    answer = list(raw or ()) if api == "responses" else [raw]
    return [*answer, *result_messages(api, answered)]


def result_messages(api: Api, answered: Sequence[AnsweredCall]) -> list[Any]:
    """The results as messages of a request; empty without any."""
    if not answered:
        return []
    if api == "chat":
        return [{"role": "tool", "tool_call_id": each.call.id, "content": each.text} for each in answered]
    if api == "responses":
        return [{"type": "function_call_output", "call_id": each.call.id, "output": each.text} for each in answered]
    return [{"role": "user", _PARTS[api]: [_result_part(api, each) for each in answered]}]


_PARTS: Mapping[Api, str] = {"messages": "content", "generate": "parts"}


def _result_part(api: Api, each: AnsweredCall) -> dict[str, Any]:
    if api == "messages":
        flag = {"is_error": True} if each.is_error else {}
        return {"type": "tool_result", "tool_use_id": each.call.id, "content": each.text, **flag}
    value = each.result if isinstance(each.result, dict) and not each.is_error else {_KEYS[each.is_error]: each.result}
    call_id = {"id": each.call.id} if each.call.id else {}
    return {"functionResponse": {**call_id, "name": each.call.name, "response": value}}


_KEYS = {True: "error", False: "result"}


def continued_request(
    api: Api, request: Mapping[str, Any], exchange: Exchange, answered: Sequence[AnsweredCall]
) -> dict[str, Any]:
    """The request after which the model reads the results; a function that was demanded is demanded no more."""
    body = dict(request)
    if api == "responses" and (body.get("previous_response_id") or body.get("conversation")):
        body["input"] = result_messages(api, answered)
        if body.get("previous_response_id"):
            body["previous_response_id"] = exchange.id
    else:
        body[MESSAGES[api]] = [*messages_of(api, request), *hidden_messages(api, exchange, answered)]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("function", "tool"):
        body["tool_choice"] = {**choice, "type": "auto"} if api == "messages" else "auto"
        if api == "messages":
            body["tool_choice"].pop("name", None)
    return body


def with_answered_calls(api: Api, messages: Sequence[Any], at: int, answered: Sequence[AnsweredCall]) -> list[Any]:
    """The messages of a client that never saw these calls, which the model made beside those of the message `at`."""
    before, after = list(messages[:at]), list(messages[at:])
    if api == "responses":
        first_call = next((n for n, each in enumerate(after) if each.get("type") == "function_call"), 0)
        calls = [_call_part(api, each.call) for each in answered]
        return [*before, *after[:first_call], *calls, *result_messages(api, answered), *after[first_call:]]
    answer, others = dict(after[0]), after[1:]
    key = "tool_calls" if api == "chat" else _PARTS[api]
    own = answer.get(key) or []
    own = [{"type": "text", "text": own}] if isinstance(own, str) else own
    answer[key] = [*own, *(_call_part(api, each.call) for each in answered)]
    if api == "chat":
        return [*before, answer, *result_messages(api, answered), *others]
    result_parts = [_result_part(api, each) for each in answered]
    if others and isinstance(others[0], dict):
        parts = others[0].get(_PARTS[api]) or []
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        others[0] = {**others[0], _PARTS[api]: [*result_parts, *parts]}
    return [*before, answer, *others]


def _call_part(api: Api, call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(dict(call.args), ensure_ascii=False)
    if api == "chat":
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    if api == "responses":
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
    if api == "messages":
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.args)}
    return {"functionCall": {**({"id": call.id} if call.id else {}), "name": call.name, "args": dict(call.args)}}


def without_calls(api: Api, answer: bytes, places: Collection[int]) -> bytes:
    """The answer without the calls at these places, counted from 0; whole, a list of objects, or a stream."""
    text = answer.decode("utf-8", "replace")
    if text.lstrip().startswith(("{", "[")):
        value = json.loads(text)
        values = value if isinstance(value, list) else [value]
        change = _CUTTERS[api]([each for each in values if isinstance(each, dict)], places)
        new_values = [change(each) if isinstance(each, dict) else each for each in values]
        return json.dumps(new_values if isinstance(value, list) else new_values[0], ensure_ascii=False).encode()
    blocks = [_Block(raw) for raw in text.replace("\r\n", "\n").split("\n\n") if raw.strip()]
    change = _CUTTERS[api]([block.value for block in blocks if block.value is not None], places)
    return "".join(block.changed(change) for block in blocks).encode()


class _Block:
    """An event of a stream: its lines, and its JSON object, if it has one."""

    def __init__(self, raw: str) -> None:
        lines = raw.split("\n")
        self._others = [line for line in lines if not line.startswith("data:")]
        self._data = "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))
        self.value: dict[str, Any] | None = None
        if self._data.startswith("{"):
            self.value = json.loads(self._data)

    def changed(self, change: Change) -> str:
        """The event after the change; empty where it goes."""
        value = change(self.value) if self.value is not None else None
        if self.value is not None and value is None:
            return ""
        data = self._data if value is None else json.dumps(value, ensure_ascii=False)
        return "\n".join([*self._others, *([f"data: {data}"] if data else [])]) + "\n\n"


Change = Callable[[dict[str, Any]], dict[str, Any] | None]


def _cut_chat(objects: Sequence[dict[str, Any]], places: Collection[int]) -> Change:
    indexes = sorted(
        {
            part.get("index", 0)
            for value in objects
            for choice in value.get("choices") or ()
            for part in (choice.get("delta") or {}).get("tool_calls") or ()
        }
    )
    new_index = {old: new for new, old in enumerate(each for place, each in enumerate(indexes) if place not in places)}

    def change(value: dict[str, Any]) -> dict[str, Any]:
        choices = []
        for raw_choice in value.get("choices") or ():
            choice = dict(raw_choice)
            if isinstance(choice.get("message"), dict) and choice["message"].get("tool_calls"):
                calls = [each for at, each in enumerate(choice["message"]["tool_calls"]) if at not in places]
                choice["message"] = {**choice["message"], "tool_calls": calls}
            delta = choice.get("delta")
            if isinstance(delta, dict) and delta.get("tool_calls"):
                own = [each for each in delta["tool_calls"] if each.get("index", 0) in new_index]
                calls = [{**each, "index": new_index[each.get("index", 0)]} for each in own]
                others = {key: each for key, each in delta.items() if key != "tool_calls"}
                choice["delta"] = {**others, **({"tool_calls": calls} if calls else {})}
            choices.append(choice)
        return {**value, "choices": choices} if "choices" in value else value

    return change


def _cut_response(objects: Sequence[dict[str, Any]], places: Collection[int]) -> Change:
    ends = [value["response"] for value in objects if isinstance(value.get("response"), dict)]
    response = ends[-1] if ends else objects[-1]
    call_indexes = [at for at, item in enumerate(response.get("output") or ()) if item.get("type") == "function_call"]
    cut_indexes = {index for place, index in enumerate(call_indexes) if place in places}

    def without(response: dict[str, Any]) -> dict[str, Any]:
        output = response.get("output")
        items = [item for at, item in enumerate(output or ()) if at not in cut_indexes]
        return {**response, "output": items} if output else response

    def change(value: dict[str, Any]) -> dict[str, Any] | None:
        if isinstance(value.get("response"), dict):
            return {**value, "response": without(value["response"])}
        index = value.get("output_index")
        if not isinstance(index, int):
            return without(value)
        return (
            None
            if index in cut_indexes
            else {**value, "output_index": index - sum(each < index for each in cut_indexes)}
        )

    return change


def _cut_anthropic(objects: Sequence[dict[str, Any]], places: Collection[int]) -> Change:
    starts = [value for value in objects if value.get("type") == "content_block_start"]
    numbers = count()
    cut_indexes = {
        value["index"]
        for value in starts
        if value["content_block"].get("type") == "tool_use" and next(numbers) in places
    }

    def change(value: dict[str, Any]) -> dict[str, Any] | None:
        if isinstance(value.get("content"), list):
            number = count()
            blocks = [
                block for block in value["content"] if not (block.get("type") == "tool_use" and next(number) in places)
            ]
            return {**value, "content": blocks}
        index = value.get("index")
        if not isinstance(index, int):
            return value
        return None if index in cut_indexes else {**value, "index": index - sum(each < index for each in cut_indexes)}

    return change


def _cut_gemini(_: Sequence[dict[str, Any]], places: Collection[int]) -> Change:
    number = count()
    signatures: list[Any] = []

    def kept(part: dict[str, Any]) -> dict[str, Any] | None:
        if not isinstance(part.get("functionCall"), dict):
            return part
        if next(number) in places:
            signatures.extend([part["thoughtSignature"]] if part.get("thoughtSignature") else [])
            return None
        # Only the first call of an answer is signed, and a client that sends it back must have the signature.
        signature = {"thoughtSignature": signatures[0]} if signatures and not part.get("thoughtSignature") else {}
        return {**part, **signature}

    def change(value: dict[str, Any]) -> dict[str, Any]:
        candidates = []
        for candidate in value.get("candidates") or ():
            content = candidate.get("content") or {}
            parts = [part for part in map(kept, content.get("parts") or ()) if part is not None]
            candidates.append({**candidate, "content": {**content, "parts": parts}})
        return {**value, "candidates": candidates} if candidates else value

    return change


_CUTTERS: Mapping[Api, Callable[[Sequence[dict[str, Any]], Collection[int]], Change]] = {
    "chat": _cut_chat,
    "responses": _cut_response,
    "messages": _cut_anthropic,
    "generate": _cut_gemini,
}
