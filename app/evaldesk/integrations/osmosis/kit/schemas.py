"""Values of the rollout protocol, as pydantic models: agents build them and dump them."""

from __future__ import annotations

from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from evaldesk.wire import to_json

__all__ = [
    "DEFAULT_MAX_METADATA_SIZE_BYTES",
    "CompletionUsage",
    "MessageDict",
    "OpenAIFunctionCallSchema",
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionParsedSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolCall",
    "OpenAIFunctionToolSchema",
    "RolloutMetrics",
    "RolloutRequest",
    "RolloutStatus",
    "SamplingParamsDict",
]

DEFAULT_MAX_METADATA_SIZE_BYTES = 1024 * 1024

MessageDict = dict[str, Any]
SamplingParamsDict = dict[str, Any]


class OpenAIFunctionPropertySchema(BaseModel):
    """One parameter of a tool."""

    type: str
    description: str | None = None
    enum: list[str] | None = None


class OpenAIFunctionParametersSchema(BaseModel):
    """The parameters of a tool, as a flat JSON schema."""

    type: str
    properties: dict[str, OpenAIFunctionPropertySchema]
    required: list[str]


class OpenAIFunctionSchema(BaseModel):
    """A tool; one without parameters takes an empty object."""

    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema = Field(
        default_factory=lambda: OpenAIFunctionParametersSchema(type="object", properties={}, required=[])
    )
    strict: bool = False


class OpenAIFunctionToolSchema(BaseModel):
    """A tool in OpenAI's envelope."""

    type: str
    function: OpenAIFunctionSchema


class OpenAIFunctionParsedSchema(BaseModel):
    """A requested call with its arguments as text."""

    name: str
    arguments: str


class OpenAIFunctionCallSchema(BaseModel):
    """A requested call with its arguments as an object."""

    name: str
    arguments: dict[str, Any]


class OpenAIFunctionToolCall(BaseModel):
    """A requested call in OpenAI's envelope."""

    id: str
    type: str = "function"
    function: OpenAIFunctionCallSchema


class CompletionUsage(BaseModel):
    """Tokens of one model call."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class RolloutStatus(str, Enum):  # noqa: UP042 - agents compare it with plain text, and print it as the original does
    """The final status of a rollout."""

    COMPLETED = "COMPLETED"
    ERROR = "ERROR"


class RolloutMetrics(BaseModel):
    """The cost of a rollout in tokens and time; milliseconds."""

    total_latency_ms: float = 0.0
    llm_latency_ms: float = 0.0
    tool_latency_ms: float = 0.0
    num_llm_calls: int = 0
    num_tool_calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    max_context_tokens: int = 0


class RolloutRequest(BaseModel):
    """The request to an agent loop. The agent itself must observe `max_turns` and `max_tokens_total`."""

    rollout_id: str = Field(min_length=1, max_length=256)
    server_url: str
    messages: list[MessageDict]
    completion_params: SamplingParamsDict
    tool_server_url: str | None = None
    max_turns: int = 10
    max_tokens_total: int = 8192
    metadata: dict[str, Any] = Field(default_factory=dict)
    api_key: str | None = None
    idempotency_key: str | None = None

    @field_validator("rollout_id")
    @classmethod
    def _names_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("rollout_id must not be blank")
        return value

    @field_validator("server_url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ValueError("server_url must be an http or https address with a host")
        return value

    @field_validator("metadata")
    @classmethod
    def _is_small_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            n_bytes = len(to_json(value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"metadata must be plain JSON: {error}") from None
        if n_bytes > DEFAULT_MAX_METADATA_SIZE_BYTES:
            raise ValueError(f"metadata is {n_bytes} bytes, more than {DEFAULT_MAX_METADATA_SIZE_BYTES}")
        return value
