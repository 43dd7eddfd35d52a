"""The state of an agent's run, and the metrics of its model calls, in the form of OpenHands.

(All-Hands-AI/OpenHands openhands/controller/state/state.py, openhands/llm/metrics.py)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from evaldesk.backports import StrEnum
from evaldesk.integrations.openhands.kit.events import Event
from evaldesk.model import Usage

__all__ = ["AgentState", "Metrics", "State"]


class AgentState(StrEnum):
    """The states of an agent's run."""

    LOADING = "loading"
    INIT = "init"
    RUNNING = "running"
    AWAITING_USER_INPUT = "awaiting_user_input"
    PAUSED = "paused"
    STOPPED = "stopped"
    FINISHED = "finished"
    REJECTED = "rejected"
    ERROR = "error"


class Metrics:
    """Cost, tokens and latencies of the model calls of a run."""

    def __init__(self, model_name: str = "default") -> None:
        self.model_name = model_name
        self.accumulated_cost = 0.0
        self.max_budget_per_task: float | None = None
        self._costs: list[dict[str, Any]] = []
        self._latencies: list[dict[str, Any]] = []
        self._usages: list[dict[str, Any]] = []

    def add(self, usage: Usage, response_id: str) -> None:
        """Count one call. An unknown cost counts as 0: OpenHands has no unknown cost."""
        cost = usage.cost or 0.0
        self.accumulated_cost += cost
        self._costs.append({"model": self.model_name, "cost": cost, "timestamp": time.time()})
        latency = {"model": self.model_name, "latency": usage.duration_ms / 1000, "response_id": response_id}
        self._latencies.append(latency)
        self._usages.append(
            {
                "model": self.model_name,
                "prompt_tokens": usage.tokens_in,
                "completion_tokens": usage.tokens_out,
                "cache_read_tokens": usage.tokens_cached,
                "cache_write_tokens": 0,
                "response_id": response_id,
            }
        )

    def get(self) -> dict[str, Any]:
        """The metrics in the form of a row of `output.jsonl`."""
        total = {
            key: sum(usage[key] for usage in self._usages)
            for key in ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")
        }
        return {
            "accumulated_cost": self.accumulated_cost,
            "max_budget_per_task": self.max_budget_per_task,
            "accumulated_token_usage": {"model": self.model_name, **total},
            "costs": list(self._costs),
            "response_latencies": list(self._latencies),
            "token_usages": list(self._usages),
        }


@dataclass
class State:
    """The run of an agent: its history, metrics and final state."""

    session_id: str = ""
    history: list[Event] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    iteration: int = 0
    max_iterations: int = 100
    agent_state: AgentState = AgentState.LOADING
    last_error: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    extra_data: dict[str, Any] = field(default_factory=dict)

    @property
    def view(self) -> list[Event]:
        """The history."""
        return self.history

    def join(self, event: Event, source: str, cause: int | None = None) -> None:
        """Add an event to the history."""
        event.join(len(self.history), source, cause)
        self.history.append(event)

    def get_last_agent_message(self) -> Any:
        """The last message of the agent; None without one."""
        return self._last("message", "agent")

    def get_last_user_message(self) -> Any:
        """The last message of the user; None without one."""
        return self._last("message", "user")

    def get_current_user_intent(self) -> tuple[str | None, list[str] | None]:
        """The text and the images of the last message of the user."""
        message = self.get_last_user_message()
        return (message.content, message.image_urls) if message else (None, None)

    def _last(self, action: str, source: str) -> Any:
        for event in reversed(self.history):
            if getattr(event, "action", "") == action and event.source is not None and event.source.value == source:
                return event
        return None
