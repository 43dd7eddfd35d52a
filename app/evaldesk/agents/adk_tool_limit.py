"""The time limit of a tool in google-adk, whose runner calls the tools of a request by themselves."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

from evaldesk.agents.tool_limit import TOOL_LIMIT, ToolLateError, in_time, unblocking

# An agent used as a tool has tools of its own; these are what the limit is for.
_UNBOUNDED = frozenset({"AgentTool", "TransferToAgentTool", "LongRunningFunctionTool"})


def limit_tools(tools: dict[str, Any]) -> None:
    """Put copies that end at the limit of the turn in place of the tools of a request; the user's stay as they are."""
    if TOOL_LIMIT.get() is None:
        return
    for name, tool in tools.items():
        if type(tool).__name__ not in _UNBOUNDED and not getattr(tool, "is_long_running", False):
            tools[name] = _limited(tool)


def _limited(tool: Any) -> Any:
    limited = copy(tool)
    if callable(getattr(limited, "func", None)):
        limited.func = unblocking(limited.func)
    run = limited.run_async

    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        try:
            return await in_time(tool.name, partial(run, args=args, tool_context=tool_context))
        except ToolLateError as error:
            return {"error": str(error)}

    limited.run_async = run_async
    return limited
