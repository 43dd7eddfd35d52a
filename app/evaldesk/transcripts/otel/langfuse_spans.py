"""Spans of the SDK of Langfuse, with their attributes as OpenInference names them. (langfuse 5.0; 3 and 4 as well)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaldesk.reading.values import text_of
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.otel.spans import Span

TYPE = "langfuse.observation.type"
_KINDS: Mapping[str, str] = {"generation": "LLM", "agent": "AGENT", "tool": "TOOL"}
_OTHER_KINDS = ("gen_ai.operation.name", "openinference.span.kind")
_NAMES: Mapping[str, str] = {
    "langfuse.observation.input": "input.value",
    "langfuse.observation.output": "output.value",
    "langfuse.observation.model.name": "llm.model_name",
}


def with_langfuse(span: Span) -> Span:
    """The span with the attributes of an observation under their usual names; any other span as it is."""
    attributes = span.attributes
    kind = _KINDS.get(text_of(attributes.get(TYPE)))
    if kind is None or any(name in attributes for name in _OTHER_KINDS):
        return span
    own: dict[str, Any] = {"openinference.span.kind": kind}
    own |= {usual: attributes[name] for name, usual in _NAMES.items() if attributes.get(name) is not None}
    own |= {"agent.name": span.name} if kind == "AGENT" else {}
    own |= {"tool.name": span.name} if kind == "TOOL" else {}
    if kind == "LLM":
        own |= _counts(attributes)
    if span.error is None and attributes.get("langfuse.observation.level") == "ERROR":
        message = text_of(attributes.get("langfuse.observation.status_message")) or "error"
        return replace(span, attributes={**attributes, **own}, error=message)
    return replace(span, attributes={**attributes, **own})


def _counts(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens and US dollars, whose names are those of the API of the model or `input`, `output` and `total`."""
    usage = json_value(attributes.get("langfuse.observation.usage_details"))
    costs = json_value(attributes.get("langfuse.observation.cost_details"))
    counts = usage if isinstance(usage, dict) else {}
    cost = costs.get("total") if isinstance(costs, dict) else None
    values = {
        "llm.token_count.prompt": _first(counts, "input", "prompt_tokens", "input_tokens"),
        "llm.token_count.completion": _first(counts, "output", "completion_tokens", "output_tokens"),
        "llm.token_count.prompt_details.cache_read": _first(counts, "input_cached_tokens", "cache_read_input_tokens"),
        "gen_ai.usage.cost": cost,
    }
    return {key: value for key, value in values.items() if value is not None}


def _first(counts: Mapping[str, Any], *names: str) -> Any:
    return next((counts[name] for name in names if counts.get(name) is not None), None)
