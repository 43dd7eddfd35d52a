"""The tools of agents of the OpenAI Agents SDK, with the doubles of the case and the limit of the turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, wraps
from typing import Any

from evaldesk.agents.framework_tools import tool_result
from evaldesk.agents.message_events import parsed
from evaldesk.agents.tool_limit import ToolFailedError
from evaldesk.model import JsonObject

FAILED = "An error occurred while running the tool"
"""How the SDK begins what it tells a model of a tool that failed."""

_MARK = "_is_watched"


def reachable(agent: Any) -> list[Any]:
    """The agent, and those that it can hand over to."""
    found: list[Any] = []
    todo = [agent]
    while todo:
        agent = todo.pop(0)
        if not any(agent is other for other in found):
            found.append(agent)
            todo.extend(target for handoff in agent.handoffs if (target := _target(handoff)) is not None)
    return found


def _target(handoff: Any) -> Any:
    """The agent that a handoff leads to; None where only the SDK knows it."""
    if hasattr(handoff, "instructions"):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)
    return reference() if callable(reference) else None


def seen(tool: Any) -> Any:
    """The tool, answered by its double and ended in time; hosted tools, and agents used as tools, as they are."""
    invoke = getattr(tool, "on_invoke_tool", None)
    if invoke is None or getattr(tool, "_is_agent_tool", False) or hasattr(invoke, _MARK):
        return tool

    @wraps(invoke)
    async def on_invoke_tool(context: Any, arguments: str) -> Any:
        state = context.context if isinstance(context.context, dict) else {}
        try:
            return await tool_result(tool.name, _args(arguments), state, partial(invoke, context, arguments))
        except ToolFailedError as error:
            return f"{FAILED}: {error}"

    setattr(on_invoke_tool, _MARK, True)
    return replace(tool, on_invoke_tool=on_invoke_tool)


def _args(arguments: str) -> JsonObject:
    found = parsed(arguments)
    return found if isinstance(found, dict) else {}
