"""What happens in a run of the OpenAI Agents SDK, as its hooks tell it."""

from __future__ import annotations

import json
import time
from functools import cache
from types import new_class
from typing import Any

from evaldesk.agents.openai_agents_tools import FAILED
from evaldesk.agents.shared_loop import Tell
from evaldesk.llm import price
from evaldesk.model import Event, ToolCall, Usage
from evaldesk.wire import plain


def hooks_of(tell: Tell) -> Any:
    """RunHooks that tell what happens as events."""
    return _hooks_class()(tell)


def model_name(agent: Any) -> str:
    """The name of the agent's model; the SDK's default where it names none."""
    found = agent.model
    if found is None:
        from agents.models.default_models import get_default_model

        return str(get_default_model())
    return str(found if isinstance(found, str) else getattr(found, "model", type(found).__name__))


def as_json(value: Any) -> Any:
    """A pydantic model as a plain object, anything else as it is."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


@cache
def _hooks_class() -> Any:
    from agents import RunHooks

    return new_class("Hooks", (_Telling, RunHooks))


class _Telling:
    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._calls: dict[str, ToolCall] = {}
        self._started: dict[str, float] = {}
        self._asked = 0.0

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._asked = time.perf_counter()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        took_ms = (time.perf_counter() - self._asked) * 1000
        await self._tell(Event("usage", author=agent.name, usage=_usage(model_name(agent), response.usage, took_ms)))
        for item in response.output:
            if item.type == "message":
                text = "".join(getattr(part, "text", "") or getattr(part, "refusal", "") for part in item.content)
                if text:
                    await self._tell(Event("agent_message", author=agent.name, text=text))
        for item in response.output:
            if item.type == "function_call":
                call = self._calls[item.call_id] = _call(item)
                await self._tell(Event("tool_call", author=agent.name, call=call))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._started[getattr(context, "tool_call_id", "")] = time.perf_counter()

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        call_id = getattr(context, "tool_call_id", "")
        await self._gave(agent, call_id, tool.name, plain(as_json(result)))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        call = next((found for found in reversed(self._calls.values()) if "transfer_to" in found.name), None)
        if call is not None:
            await self._gave(from_agent, call.id or "", call.name, f"handed over to {to_agent.name}")

    async def _gave(self, agent: Any, call_id: str, name: str, result: Any) -> None:
        took_ms = (time.perf_counter() - self._started.get(call_id, time.perf_counter())) * 1000
        call = self._calls.get(call_id) or ToolCall(name, id=call_id)
        is_error = isinstance(result, str) and result.startswith(FAILED)
        await self._tell(
            Event(
                "tool_result",
                author=agent.name,
                call=call,
                result=result,
                is_error=is_error,
                duration_ms=took_ms,
            )
        )


def _call(item: Any) -> ToolCall:
    try:
        args = json.loads(item.arguments or "{}")
    except ValueError:
        args = None
    if not isinstance(args, dict):
        return ToolCall(item.name, {}, item.call_id, {"arguments": str(item.arguments)})
    return ToolCall(item.name, args, item.call_id)


def _usage(model: str, spent: Any, took_ms: float) -> Usage:
    tokens_in, tokens_out = int(spent.input_tokens or 0), int(spent.output_tokens or 0)
    cost = price(model, tokens_in, tokens_out)
    return Usage(model, tokens_in=tokens_in, tokens_out=tokens_out, cost=cost, duration_ms=took_ms)
