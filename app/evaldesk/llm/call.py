"""A model call and its reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.llm.pacing import Pace
from evaldesk.model import JsonObject, ModelOptions, Usage

SAMPLING = ("temperature", "top_p", "max_tokens", "reasoning_effort")


def pace_of(options: ModelOptions) -> Pace | None:
    """The rate limits of a run or a chat; None without limits."""
    return Pace(options.rpm, options.tpm, options.base_url or "") if options.rpm or options.tpm else None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The request to a model: chat messages and tools in OpenAI's shape.

    A bare name at an `api_base` is a model of that OpenAI-compatible endpoint. `api_key_env` is the environment
    variable with the key; `extra` is added to the body unchanged. `timeout_s` is the limit of each attempt. `prices`
    are US dollars for a million tokens in and out; without them LiteLLM's price map counts. `pace` is its rate limit.
    """

    model: str
    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    api_base: str | None = None
    api_key_env: str | None = None
    extra: JsonObject = field(default_factory=dict)
    timeout_s: float = 120.0
    prices: tuple[float, float] | None = None
    pace: Pace | None = None

    @classmethod
    def from_options(cls, options: ModelOptions, model: str, messages: Sequence[JsonObject], **more: Any) -> ModelCall:
        """A call with the model options of a run or a chat; fields in `more` override them."""
        fields: dict[str, Any] = {name: getattr(options, name) for name in SAMPLING}
        fields |= {"api_base": options.base_url, "api_key_env": options.api_key_env, "extra": options.extra}
        return cls(model, messages, **{**fields, "prices": options.prices, "pace": pace_of(options), **more})

    @property
    def settings(self) -> dict[str, Any]:
        """The sampling fields that are set, by OpenAI's names."""
        values = {name: getattr(self, name) for name in (*SAMPLING, "seed")}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call in a reply; `arguments` is unparsed text, normally a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The answer of a model. `finish_reason` is `stop`, `length`, `tool_calls` or `content_filter`, as in LiteLLM."""

    text: str
    tool_calls: tuple[RequestedCall, ...]
    usage: Usage
    finish_reason: str = "stop"
