"""Calls of a model at a test's endpoint, the retry policy of a test, and streams of pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.agents.endpoint import Answer, Endpoint, chunks

from evaldesk.llm import ModelCall, RetryPolicy
from evaldesk.model import JsonObject

MODEL = "hosted_vllm/small"
HASTE = RetryPolicy(n_attempts=3, first_wait_s=0.001, max_backoff_s=0.002, max_retry_after_s=0.002)
MESSAGES: tuple[JsonObject, ...] = ({"role": "user", "content": "hi"},)
TOOL: JsonObject = {
    "type": "function",
    "function": {"name": "roll_die", "description": "Roll.", "parameters": {"type": "object", "properties": {}}},
}


def call_of(endpoint: Endpoint, **fields: Any) -> ModelCall:
    """A call of the model at the endpoint."""
    return ModelCall(**{"model": MODEL, "messages": MESSAGES, "api_base": endpoint.address, **fields})


def streamed(*deltas: Mapping[str, Any]) -> Answer:
    """An answer of these pieces."""
    return Answer(stream=chunks(*({"role": "assistant", **delta} for delta in deltas)))
