"""One call of a model as its provider's API has it: the request's results of tools, the answer's calls and tokens.

OpenAI's chat completions and responses, Anthropic's messages, Gemini's generateContent, whole or streamed.
(https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/generate-content)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

from evaldesk.llm.apis import Api, model_in
from evaldesk.model import ToolCall
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.messages.anthropic import read_anthropic
from evaldesk.transcripts.messages.chat import read_chat_message
from evaldesk.transcripts.messages.turns import Message

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a call, with its cached and reasoning tokens.

    `cached` is the part of `tokens_in` that the provider did not read again, `cache_writes` the part that it stores;
    both have prices of their own. `reasoning` is the part of `tokens_out` that is not in the answer.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A model call as read: the tool results that it sent, the answer, its tokens; None where the API reports none.

    `raw_answer` is the answer as its API gives it, put together where it was streamed. `id` is that of a response, from
    which a server goes on.
    """

    model: str
    results: tuple[Message, ...]
    answer: Message
    tokens: Tokens | None
    raw_answer: Any = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request in its parts: the messages, instructions among them, the tools, and all that is neither."""

    messages: tuple[Any, ...]
    tools: Any = None
    settings: Json = field(default_factory=dict)


_INSTRUCTIONS = ("instructions", "system", "systemInstruction", "system_instruction")
_MESSAGES = ("messages", "input", "contents")


def read_request(request: Mapping[str, Any]) -> ModelRequest:
    """The request of any of the APIs, taken apart."""
    settings = dict(request)
    instructions = [settings.pop(name) for name in _INSTRUCTIONS if settings.get(name)]
    first = [each if _is_message(each) else {"role": "system", "content": each} for each in instructions]
    raw_messages: Any = next((settings.pop(name) for name in _MESSAGES if settings.get(name)), [])
    messages = raw_messages if isinstance(raw_messages, list) else [{"role": "user", "content": raw_messages}]
    return ModelRequest((*first, *messages), settings.pop("tools", None), settings)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value


def read_exchange(api: Api, path: str, request: Json, answer: bytes) -> Exchange:
    """The call. Raises FormatError and ValueError for an answer in another shape."""
    objects = _values(answer)
    if not objects:
        raise ValueError("the answer is empty")
    _, reader = _READERS[api]
    return reader(_model(api, path, request, objects), results_in(api, request), objects)


def results_in(api: Api, request: Json) -> tuple[Message, ...]:
    """The results of tools that the request tells after the model's last answer."""
    request_messages, _ = _READERS[api]
    return tuple(request_messages(request))


def _values(answer: bytes) -> list[Json]:
    """The objects of an answer: one, those of a list, or those of the events of a stream."""
    text = answer.decode("utf-8", "replace").strip()
    if not text.startswith(("{", "[")):
        lines = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("data:"))
        content: Any = [json.loads(line) for line in lines if line and line != "[DONE]"]
    else:
        content = json.loads(text)
    values = content if isinstance(content, list) else [content]
    return [value for value in values if isinstance(value, dict)]


def _model(api: Api, path: str, request: Json, objects: Sequence[Json]) -> str:
    if api == "generate":
        return model_in(path)
    model = request.get("model") or next((value["model"] for value in objects if value.get("model")), "")
    return str(model)


def _tail(messages: Any, own: str) -> list[Json]:
    """The messages after the model's last."""
    items = [each for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    last = max((at for at, each in enumerate(items) if each.get("role") == own), default=-1)
    return items[last + 1 :]


def _chat_results(request: Json) -> Iterator[Message]:
    for raw in _tail(request.get("messages"), "assistant"):
        if raw.get("role") in ("tool", "function"):
            yield read_chat_message(JsonPosition(Document(raw)), raw, Notes())


def _read_chat(model: str, results: tuple[Message, ...], objects: Sequence[Json]) -> Exchange:
    usage = next((value["usage"] for value in reversed(objects) if isinstance(value.get("usage"), dict)), None)
    message = _chat_message(objects)
    answer = read_chat_message(JsonPosition(Document(message)), message, Notes())
    return Exchange(model, results, answer, _tokens_of_openai(usage, "prompt", "completion"), message)


def _chat_message(objects: Sequence[Json]) -> Json:
    """The message of the first choice, put together from its pieces where it was streamed."""
    choices = [choice for value in objects for choice in value.get("choices") or () if not choice.get("index")]
    message = next((choice["message"] for choice in choices if isinstance(choice.get("message"), dict)), None)
    if message is not None:
        return {**message, "role": "assistant"}
    texts: list[str] = []
    calls: dict[int, Json] = {}
    for delta in (choice["delta"] for choice in choices if isinstance(choice.get("delta"), dict)):
        texts.append(delta.get("content") or "")
        for part in delta.get("tool_calls") or ():
            others = {name: value for name, value in part.items() if name not in ("index", "function")}
            new_call = {"type": "function", **others, "function": {"name": "", "arguments": ""}}
            call = calls.setdefault(part.get("index", len(calls)), new_call)["function"]
            function = part.get("function") or {}
            call["name"] += function.get("name") or ""
            call["arguments"] += function.get("arguments") or ""
    return {"role": "assistant", "content": "".join(texts), "tool_calls": [calls[at] for at in sorted(calls)]}


def _response_results(request: Json) -> Iterator[Message]:
    items = request.get("input")
    for raw in items if isinstance(items, list) else ():
        if isinstance(raw, dict) and raw.get("type") == "function_call_output":
            yield read_chat_message(JsonPosition(Document(raw)), raw, Notes())


def _read_response(model: str, results: tuple[Message, ...], objects: Sequence[Json]) -> Exchange:
    ends = [value["response"] for value in objects if isinstance(value.get("response"), dict)]
    response = ends[-1] if ends else objects[-1]
    usage = response.get("usage")
    calls: list[ToolCall] = []
    for item in response.get("output") or ():
        if item.get("type") == "function_call":
            calls += read_chat_message(JsonPosition(Document(item)), item, Notes()).calls
    tokens = _tokens_of_openai(usage, "input", "output")
    message = Message("agent", calls=tuple(calls))
    return Exchange(model, results, message, tokens, response.get("output"), str(response.get("id") or ""))


def _tokens_of_openai(usage: Any, input_name: str, output_name: str) -> Tokens | None:
    cached = _number(_dict(usage, f"{input_name}_tokens_details"), "cached_tokens")
    reasoning = _number(_dict(usage, f"{output_name}_tokens_details"), "reasoning_tokens")
    counts = _number(usage, f"{input_name}_tokens"), _number(usage, f"{output_name}_tokens")
    return Tokens(*counts, cached, reasoning=reasoning) if usage else None


def _anthropic_results(request: Json) -> Iterator[Message]:
    for raw in _tail(request.get("messages"), "assistant"):
        messages = read_anthropic(JsonPosition(Document([raw])), [raw], Notes())
        yield from (message for message in messages if message.speaker == "tool")


_TEXT_KEYS = frozenset({"text", "thinking", "signature"})


def _read_anthropic(model: str, results: tuple[Message, ...], objects: Sequence[Json]) -> Exchange:
    usage: Json = {}
    blocks: dict[int, Json] = {}
    json_pieces: dict[int, str] = {}
    texts: dict[tuple[int, str], list[str]] = {}
    for value in objects:
        source = value.get("message") if value.get("type") == "message_start" else value
        usage |= {name: n for name, n in (_dict(source, "usage") or {}).items() if n is not None}
        if isinstance(value.get("content"), list):
            blocks = dict(enumerate(value["content"]))
        elif value.get("type") == "content_block_start":
            blocks[value["index"]] = dict(value["content_block"])
        elif value.get("type") == "content_block_delta":
            at = value["index"]
            delta = _dict(value, "delta", {})
            json_pieces[at] = json_pieces.get(at, "") + str(delta.get("partial_json") or "")
            for name in _TEXT_KEYS & delta.keys():
                texts.setdefault((at, name), []).append(str(delta[name]))
    for (at, name), pieces in texts.items():
        blocks.setdefault(at, {})[name] = "".join((str(blocks[at].get(name) or ""), *pieces))
    for at, text in json_pieces.items():
        if text and blocks[at].get("type") == "tool_use":
            blocks[at]["input"] = json.loads(text)
    raw_answer = {"role": "assistant", "content": [block for _, block in sorted(blocks.items())]}
    own = [block for _, block in sorted(blocks.items()) if block.get("type") == "tool_use"]
    message: Any = {"role": "assistant", "content": own}
    [answer] = read_anthropic(JsonPosition(Document([message])), [message], Notes())
    cached, cache_writes = _number(usage, "cache_read_input_tokens"), _number(usage, "cache_creation_input_tokens")
    tokens_in = _number(usage, "input_tokens") + cached + cache_writes
    tokens = Tokens(tokens_in, _number(usage, "output_tokens"), cached, cache_writes) if usage else None
    return Exchange(model, results, answer, tokens, raw_answer)


def _gemini_results(request: Json) -> Iterator[Message]:
    for content in _tail(request.get("contents"), "model"):
        for part in content.get("parts") or ():
            response = part.get("functionResponse") or part.get("function_response")
            if isinstance(response, dict):
                call_id = response.get("id")
                name = str(response.get("name") or "")
                yield Message("tool", author=name, call_id=call_id, result=response.get("response"))


def _read_gemini(model: str, results: tuple[Message, ...], objects: Sequence[Json]) -> Exchange:
    usage = next((value["usageMetadata"] for value in reversed(objects) if value.get("usageMetadata")), None)
    candidates = [candidate for value in objects for candidate in (value.get("candidates") or ())[:1]]
    parts = [part for each in candidates for part in _dict(each, "content", {}).get("parts") or ()]
    raw_calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    calls = tuple(ToolCall(str(each.get("name")), dict(each.get("args") or {}), each.get("id")) for each in raw_calls)
    tokens = None
    if usage:
        thoughts = _number(usage, "thoughtsTokenCount")
        tokens_in = _number(usage, "promptTokenCount") + _number(usage, "toolUsePromptTokenCount")
        tokens_out = _number(usage, "candidatesTokenCount") + thoughts
        cached = _number(usage, "cachedContentTokenCount")
        tokens = Tokens(tokens_in, tokens_out, cached, reasoning=thoughts)
    return Exchange(
        model, results, Message("agent", calls=calls), tokens, {"role": "model", "parts": _join_texts(parts)}
    )


def _join_texts(parts: Sequence[Any]) -> list[Any]:
    """Parts of a stream, with the pieces of one text as one."""
    new_parts: list[Any] = []
    for is_text, group in groupby(parts, _is_bare_text):
        pieces = [*group]
        new_parts += [{"text": "".join(piece["text"] for piece in pieces)}] if is_text else pieces
    return new_parts


def _is_bare_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"text"} and isinstance(part["text"], str)


def _dict(mapping: Any, name: str, default: Any = None) -> Any:
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    return value if isinstance(value, dict) else default


def _number(mapping: Any, name: str) -> Any:
    """As it was told: a number that cannot be ends the trial by name, where it becomes a usage."""
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    return 0 if value is None else value


_READERS: Mapping[
    Api,
    tuple[Callable[[Json], Iterator[Message]], Callable[[str, tuple[Message, ...], Sequence[Json]], Exchange]],
] = {
    "chat": (_chat_results, _read_chat),
    "responses": (_response_results, _read_response),
    "messages": (_anthropic_results, _read_anthropic),
    "generate": (_gemini_results, _read_gemini),
}
"""How the results in a request and the whole call are read."""
