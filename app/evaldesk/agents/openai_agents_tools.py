"""The tools of agents of the OpenAI Agents SDK, ended at the time limit of the turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, wraps
from typing import Any

from evaldesk.agents.tool_limit import ToolLateError, in_time

FAILED = "An error occurred while running the tool"
"""How the SDK begins what it tells a model of a tool that failed."""


def reachable(agent: Any) -> list[Any]:
    """The agent, and those that it can hand over to."""
    found: list[Any] = []
    todo = [agent]
    while todo:
        agent = todo.pop(0)
        if not any(agent is other for other in found):
            found.append(agent)
            todo.extend(handoff for handoff in agent.handoffs if hasattr(handoff, "instructions"))
    return found


def limited(tool: Any) -> Any:
    """The tool, ended in time in a turn that has a limit; hosted tools, and agents used as tools, as they are."""
    invoke = getattr(tool, "on_invoke_tool", None)
    if invoke is None or getattr(tool, "_is_agent_tool", False) or hasattr(invoke, "__wrapped__"):
        return tool

    @wraps(invoke)
    async def on_invoke_tool(context: Any, arguments: str) -> Any:
        try:
            return await in_time(tool.name, partial(invoke, context, arguments))
        except ToolLateError as error:
            return f"{FAILED}: {error}"

    return replace(tool, on_invoke_tool=on_invoke_tool)
