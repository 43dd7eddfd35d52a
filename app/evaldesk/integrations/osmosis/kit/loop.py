"""Agent loops: the base class, its context, and its result."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from evaldesk.integrations.osmosis.kit.schemas import OpenAIFunctionToolSchema, RolloutMetrics, RolloutRequest

__all__ = ["CompletionsResult", "OsmosisLLMClient", "RolloutAgentLoop", "RolloutContext", "RolloutResult"]

_log = logging.getLogger("osmosis_ai.rollout")


@dataclass
class CompletionsResult:
    """The answer of a model; append `message` to the conversation."""

    message: dict[str, Any]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = "stop"

    @property
    def has_tool_calls(self) -> bool:
        """Whether the answer has tool calls."""
        return bool(self.message.get("tool_calls"))

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls in OpenAI's form."""
        return self.message.get("tool_calls") or []

    @property
    def content(self) -> str:
        """The text; empty without one."""
        return self.message.get("content") or ""


class OsmosisLLMClient(Protocol):
    """The client of the model."""

    async def chat_completions(self, messages: list[dict[str, Any]], **options: Any) -> CompletionsResult:
        """Call the model."""

    def get_metrics(self) -> RolloutMetrics:
        """The metrics so far."""


@dataclass
class RolloutResult:
    """The result of an agent loop; `status` is `COMPLETED` or `ERROR`."""

    status: str
    final_messages: list[dict[str, Any]]
    finish_reason: str
    error_message: str | None = None
    metrics: RolloutMetrics | None = None
    reward: float | None = None


@dataclass
class RolloutContext:
    """The context of an agent loop."""

    request: RolloutRequest
    tools: list[OpenAIFunctionToolSchema]
    llm: OsmosisLLMClient
    _start_time: float = field(default_factory=time.monotonic, repr=False)
    _tool_latency_ms: float = field(default=0.0, repr=False)
    _num_tool_calls: int = field(default=0, repr=False)
    _debug_dir: str | None = field(default=None, repr=False)

    async def chat(self, messages: list[dict[str, Any]], **options: Any) -> CompletionsResult:
        """Call the model with options of a chat completion."""
        return await self.llm.chat_completions(messages, **options)

    def complete(
        self, final_messages: list[dict[str, Any]], finish_reason: str = "stop", reward: float | None = None
    ) -> RolloutResult:
        """The result of a completed loop."""
        return RolloutResult("COMPLETED", final_messages, finish_reason, metrics=self._metrics(), reward=reward)

    def error(self, error_message: str, final_messages: list[dict[str, Any]] | None = None) -> RolloutResult:
        """The result of a failed loop."""
        return RolloutResult("ERROR", final_messages or [], "error", error_message, self._metrics())

    def record_tool_call(self, latency_ms: float = 0.0) -> None:
        """Count a tool call."""
        self._num_tool_calls += 1
        self._tool_latency_ms += latency_ms

    @property
    def debug_enabled(self) -> bool:
        """Whether `log_event` writes to a file."""
        return self._debug_dir is not None

    def log_event(self, event_type: str, **data: Any) -> None:
        """Append the event to `<debug folder>/<rollout id>.jsonl`, if there is a debug folder."""
        if self._debug_dir is None:
            return
        line = json.dumps({"event": event_type, "rollout_id": self.request.rollout_id, **data}, default=str)
        file = Path(self._debug_dir, f"{self.request.rollout_id}.jsonl")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
        except OSError as error:
            _log.warning("%s: %s", file, error)

    def _metrics(self) -> RolloutMetrics:
        metrics = self.llm.get_metrics()
        return metrics.model_copy(
            update={
                "total_latency_ms": (time.monotonic() - self._start_time) * 1000,
                "tool_latency_ms": self._tool_latency_ms,
                "num_tool_calls": self._num_tool_calls,
            }
        )


class RolloutAgentLoop(ABC):
    """An agent: a name, its tools, and `run`. One instance serves all rollouts, several at once."""

    name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        is_abstract = any(
            getattr(getattr(cls, method, None), "__isabstractmethod__", False) for method in ("run", "get_tools")
        )
        if not (is_abstract or getattr(cls, "name", None)):
            raise TypeError(f"Agent loop class {cls.__name__} must define a 'name' class attribute")

    @abstractmethod
    def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
        """The tools offered for this request."""

    @abstractmethod
    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Answer `ctx.request.messages`."""
