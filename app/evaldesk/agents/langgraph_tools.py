"""The tools that the tool nodes of a graph call, ended at the time limit of the turn."""

from __future__ import annotations

from functools import partial
from typing import Any

from evaldesk.agents.tool_limit import ToolLateError, in_time

_MARK = "_is_limited"


def limit_tool_nodes(graph: Any) -> None:
    """Let the tool nodes of the graph, and of the graphs inside it, end their calls in time where a turn has a limit.

    Tools that a node of the user's calls by itself are not seen, nor those of a node with a synchronous wrapper.
    """
    for node in graph.nodes.values():
        bound = getattr(node, "bound", None)
        if hasattr(bound, "tools_by_name") and hasattr(bound, "_awrap_tool_call"):
            _limit(bound)
        elif hasattr(bound, "nodes") and bound is not graph:
            limit_tool_nodes(bound)


def _limit(node: Any) -> None:
    own = node._awrap_tool_call
    if getattr(own, _MARK, False) or (own is None and node._wrap_tool_call is not None):
        return

    async def limited(request: Any, execute: Any) -> Any:
        name, call_id = request.tool_call["name"], request.tool_call["id"]
        call = partial(own, request, execute) if own else partial(execute, request)
        try:
            return await in_time(name, call)
        except ToolLateError as error:
            from langchain_core.messages import ToolMessage

            return ToolMessage(content=str(error), name=name, tool_call_id=call_id, status="error")

    setattr(limited, _MARK, True)
    node._awrap_tool_call = limited
