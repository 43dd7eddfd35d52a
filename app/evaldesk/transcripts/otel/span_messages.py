"""The input and the output of a model, out of the attributes of a span, in every existing convention.

OpenTelemetry GenAI as it is (`gen_ai.input.messages` with parts) and as it was (`gen_ai.prompt`, numbered attributes,
events), Google ADK's own attributes, and OpenInference. A model call whose messages cannot be read is left out with a
note: exporters cut long attributes off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.model import ErrorRecord, Usage
from evaldesk.model.json_text import json_or_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import text_of
from evaldesk.transcripts.messages.parts import in_order, json_value, parse_value, read_part_message
from evaldesk.transcripts.messages.turns import Message
from evaldesk.transcripts.otel.spans import Span, whole_of
from evaldesk.transcripts.recorded import recorded_usage

UNREADABLE = "the messages of a model call, which cannot be read (cut off?)"
_DETAILS = "gen_ai.client.inference.operation.details"
_BLOCKS = frozenset({"text", "toolUse", "toolResult", "reasoningContent"})
_TOKENS = "llm.token_count"
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model: its input and its answer."""

    inputs: tuple[Message, ...]
    outputs: tuple[Message, ...]


def model_call(span: Span, notes: Notes) -> ModelCall | None:
    """The messages on a span; None when it has none, or none that can be read."""
    place = JsonPosition(Document(None, source=span.place.document.source), span.place.path)
    try:
        sides = sides_of(span)
        if sides is not None:
            inputs, outputs = ([m for raw in side for m in read_part_message(place, raw, notes)] for side in sides)
            return ModelCall(tuple(inputs), tuple(outputs))
    except FormatError:
        notes.refuse(UNREADABLE, span.place)
    return None


def usage_of(span: Span, ended_ms: float) -> Usage | ErrorRecord | None:
    """Tokens and duration of a model call; None when the span counts no tokens."""
    tokens_in = span.first("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", f"{_TOKENS}.prompt")
    tokens_out = span.first("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", f"{_TOKENS}.completion")
    if tokens_in is None and tokens_out is None:
        return None
    cached = span.first(
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        f"{_TOKENS}.prompt_details.cache_read",
    )
    reasoning = span.first("gen_ai.usage.reasoning.output_tokens", f"{_TOKENS}.completion_details.reasoning")
    return recorded_usage(
        model_of(span),
        {"tokens_in": whole_of(tokens_in), "tokens_out": whole_of(tokens_out)},
        "tokens_in",
        "tokens_out",
        duration_ms=max(0.0, round(ended_ms - span.start_ms, 3)),
        cost=span.first("gen_ai.usage.cost"),
        tokens_cached=whole_of(cached),
        tokens_reasoning=whole_of(reasoning),
    )


def model_of(span: Span) -> str:
    """The model that was asked for, or that answered; empty when the span does not say."""
    return text_of(span.first("gen_ai.request.model", "gen_ai.response.model", "llm.model_name"))


def tools_and_settings(span: Span) -> tuple[Any, dict[str, Any]]:
    """The tools that a model was offered, None without any, and all else that was asked of it."""
    attributes = span.attributes
    request = json_value(attributes.get("gcp.vertex.agent.llm_request"))
    config = request.get("config") if isinstance(request, dict) else None
    settings = dict(config) if isinstance(config, dict) else {}
    settings.pop("system_instruction", None)
    tools = settings.pop("tools", None) or json_value(attributes.get("gen_ai.tool.definitions"))
    parameters = json_value(attributes.get("llm.invocation_parameters"))
    settings |= parameters if isinstance(parameters, dict) else {}
    settings |= {
        key.removeprefix(_REQUEST): value
        for key, value in attributes.items()
        if key.startswith(_REQUEST) and key != f"{_REQUEST}model"
    }
    llm = attributes.get("llm")
    offered = llm.get("tools") if isinstance(llm, dict) else in_order(_nested_attributes(attributes, "llm.tools."))
    schemas = [_schema(each) for each in offered or ()]
    return tools or settings.pop("tools", None) or schemas or None, settings


_REQUEST = "gen_ai.request."


def _schema(tool: Any) -> Any:
    """The declaration of a tool of OpenInference, which is JSON in a name of its own."""
    inner = tool.get("tool", tool) if isinstance(tool, dict) else tool
    schema = inner.get("json_schema", inner) if isinstance(inner, dict) else inner
    return json_value(schema) if isinstance(schema, str) else schema


Sides = tuple[list[Any], list[Any]]


def sides_of(span: Span) -> Sides | None:
    """The input and the output of a model call as they stand on its span. Raises FormatError for JSON that is cut."""
    readers = (_current, _adk, _numbered_messages, _prompt_sides, _events, _openinference)
    return next((sides for reader in readers if (sides := reader(span)) is not None), None)


def _current(span: Span) -> Sides | None:
    for attributes in (span.attributes, *(event.attributes for event in span.events if event.name == _DETAILS)):
        inputs, outputs = attributes.get("gen_ai.input.messages"), attributes.get("gen_ai.output.messages")
        if inputs is not None or outputs is not None:
            system = parse_value(attributes.get("gen_ai.system_instructions"))
            system = [{"type": "text", "content": system}] if isinstance(system, str) else system
            first = [{"role": "system", "parts": system}] if isinstance(system, list) else []
            return [*first, *_list(inputs, "user")], _list(outputs, "assistant")
    return None


def _adk(span: Span) -> Sides | None:
    """The contents of ADK's `call_llm` spans: a request and a response of the Gemini API as JSON."""
    request = parse_value(span.attributes.get("gcp.vertex.agent.llm_request"))
    response = parse_value(span.attributes.get("gcp.vertex.agent.llm_response"))
    if not isinstance(request, dict) or not request.get("contents"):
        return None
    config = request.get("config")
    system = config.get("system_instruction") if isinstance(config, dict) else None
    first = [{"role": "system", "content": system}] if isinstance(system, str) else []
    content = response.get("content") if isinstance(response, dict) else None
    return [*first, *_list(request["contents"], "user")], [content] if isinstance(content, dict) else []


def _numbered_messages(span: Span) -> Sides | None:
    """`gen_ai.prompt.0.role`, `gen_ai.completion.0.tool_calls.0.name`, ..., as OpenLLMetry writes them."""
    inputs, outputs = (
        _nested_attributes(span.attributes, "gen_ai.prompt."),
        _nested_attributes(span.attributes, "gen_ai.completion."),
    )
    return (_messages_of_role("user", inputs), _messages_of_role("assistant", outputs)) if inputs or outputs else None


def _prompt_sides(span: Span) -> Sides | None:
    """`gen_ai.prompt` and `gen_ai.completion`, on the span or on its events, JSON or text."""
    bags = [span.attributes, *(event.attributes for event in span.events)]
    inputs = next((bag["gen_ai.prompt"] for bag in bags if "gen_ai.prompt" in bag), None)
    outputs = next((bag["gen_ai.completion"] for bag in bags if "gen_ai.completion" in bag), None)
    if inputs is None and outputs is None:
        return None
    return _either(inputs, "user"), _either(outputs, "assistant")


def _events(span: Span) -> Sides | None:
    inputs: list[Any] = []
    outputs: list[Any] = []
    for event in span.events:
        role = _EVENT_ROLES.get(event.name)
        if role is None:
            continue
        body = json_value(event.attributes.get("body", event.attributes.get("event.body")))
        fields = dict(body) if isinstance(body, dict) else dict(event.attributes)
        inner = json_value(fields.get("message"))
        message = {**fields, **(inner if isinstance(inner, dict) else {})}
        calls = json_value(message.get("tool_calls"))
        content = inner if isinstance(inner, list) else json_value(message.get("content"))
        blocks = _parts_of_blocks(content)
        if blocks is not None:
            (outputs if event.name == "gen_ai.choice" else inputs).append({"role": role, "parts": blocks})
            continue
        # A choice that only calls tools has a message without content.
        text = message.get("content", None if isinstance(inner, dict) else message.get("message"))
        row_content = content if isinstance(content, list) else text
        row = {
            "role": role,
            "content": row_content,
            "tool_calls": calls,
            "id": message.get("id"),
            "name": message.get("name"),
        }
        (outputs if event.name == "gen_ai.choice" else inputs).append(row)
    return (inputs, outputs) if inputs or outputs else None


def _parts_of_blocks(content: Any) -> list[Any] | None:
    """The content blocks of Bedrock's Converse API, which Strands writes for every model; None for other content."""
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if not blocks or len(blocks) < len(content):
        return None
    is_converse = all("type" not in block and _BLOCKS & set(block) for block in blocks)
    return [_part_of_block(block) for block in blocks] if is_converse else None


def _part_of_block(block: dict[str, Any]) -> dict[str, Any]:
    call, result = block.get("toolUse"), block.get("toolResult")
    if isinstance(call, dict):
        return {
            "type": "tool_call",
            "id": call.get("toolUseId"),
            "name": call.get("name"),
            "arguments": call.get("input"),
        }
    if isinstance(result, dict):
        return {
            "type": "tool_call_response",
            "id": result.get("toolUseId"),
            "response": value_of_blocks(result.get("content")),
        }
    thought = block.get("reasoningContent")
    if isinstance(thought, dict):
        inner = thought.get("reasoningText")
        return {"type": "reasoning", "content": inner.get("text") if isinstance(inner, dict) else ""}
    return {"type": "text", "content": block.get("text")}


def value_of_blocks(content: Any) -> Any:
    """The result of a tool in such blocks: one value as it is, several as a list; other content is itself."""
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        return content
    values = [json_value(each.get("json", each.get("text", each))) for each in content]
    return values[0] if len(values) == 1 else values


def _openinference(span: Span) -> Sides | None:
    inputs, outputs = (_nested_attributes(span.attributes, f"llm.{side}_messages.") for side in ("input", "output"))
    llm = span.attributes.get("llm")
    if isinstance(llm, dict):
        inputs, outputs = llm.get("input_messages") or inputs, llm.get("output_messages") or outputs
    if inputs or outputs:
        rows = [_unwrap(row) for row in in_order(inputs)]
        retold = ("tool-call", "tool-response")  # smolagents' words for a call or a result, which have their spans
        input_messages = [row for row in rows if not (isinstance(row, dict) and row.get("role") in retold)]
        return input_messages, [_unwrap(row) for row in in_order(outputs)]
    if span.attributes.get("openinference.span.kind") != "LLM":
        return None
    input_value, output_value = span.attributes.get("input.value"), span.attributes.get("output.value")
    if input_value is None and output_value is None:
        return None
    return _either(input_value, "user"), _either(output_value, "assistant")


def _messages_of_role(role: str, rows: dict[str, Any]) -> list[Any]:
    """The rows in order; a list of parts stands there as JSON text."""
    messages: list[Any] = []
    for row in in_order(rows):
        if not isinstance(row, dict):
            continue
        content = json_value(row.get("content"))
        is_parts = isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)
        messages.append({"role": role, **row, **({"content": content} if is_parts else {})})
    return messages


def _unwrap(row: Any) -> Any:
    """An OpenInference message, whose parts and calls are wrapped in names of their own."""
    message = row.get("message", row) if isinstance(row, dict) else row
    if not isinstance(message, dict):
        return message
    parts = [part.get("message_content", part) for part in in_order(message.get("contents")) if isinstance(part, dict)]
    calls = [call.get("tool_call", call) for call in in_order(message.get("tool_calls")) if isinstance(call, dict)]
    return {**message, "content": message.get("content") or parts or None, "tool_calls": calls}


def _nested_attributes(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """`{"0": {"role": ...}}` of the attributes `prefix0.role`, ..."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix):
            continue
        *steps, last = key[len(prefix) :].split(".")[:12]
        inner = tree
        for step in steps:
            following = inner.setdefault(step, {})
            if not isinstance(following, dict):
                break
            inner = following
        else:
            inner.setdefault(last, value)
    return tree


def _either(raw: Any, role: str) -> list[Any]:
    """Messages as JSON, `{"messages": [...]}`, one `{"text": ...}`, or bare text."""
    value = json_value(raw)
    if isinstance(value, dict):
        inner = value.get("messages", value.get("contents"))
        if isinstance(inner, list):
            return inner
        if "role" in value:
            return [value]
        text = value.get("text", value.get("content"))
        return [{"role": role, "content": text if isinstance(text, str) else json_or_text(value)}]
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return [{"role": role, **item} for item in value]
    return [] if value is None else [{"role": role, "content": str(value)}]


def _list(raw: Any, role: str) -> list[Any]:
    """The messages of an attribute; one alone, or bare text, is a list of one. Raises FormatError."""
    value = parse_value(raw)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [_candidate(item, role) for item in (value if isinstance(value, list) else [value])]


def _candidate(item: Any, role: str) -> Any:
    """The message in a candidate of the Gemini API, which some write as it is; any other message itself."""
    content = item.get("content") if isinstance(item, dict) else None
    is_wrapped = isinstance(content, dict) and "parts" in content
    return {"role": role, **content} if is_wrapped and isinstance(content, dict) else item
