"""The tools that the tool nodes of a graph call, with the doubles of the case and the limit of the turn."""

from __future__ import annotations

from functools import partial
from typing import Any

from evaldesk.agents.framework_tools import tool_result
from evaldesk.agents.tool_limit import ToolFailedError
from evaldesk.wire import to_json

_MARK = "_is_watched"


def watch_tool_nodes(graph: Any) -> None:
    """Let the tool nodes of the graph, and of the graphs inside it, heed doubles, and end their calls in time.

    A double sees the state of the graph and cannot change it. Tools that a node of the user's calls by itself are not
    seen, nor those of a node with a synchronous wrapper.
    """
    for node in graph.nodes.values():
        bound = getattr(node, "bound", None)
        if hasattr(bound, "tools_by_name") and hasattr(bound, "_awrap_tool_call"):
            _watch(bound)
        elif hasattr(bound, "nodes") and bound is not graph:
            watch_tool_nodes(bound)


def _watch(node: Any) -> None:
    own = node._awrap_tool_call
    if getattr(own, _MARK, False) or (own is None and node._wrap_tool_call is not None):
        return

    async def seen(request: Any, execute: Any) -> Any:
        name, call_id = request.tool_call["name"], request.tool_call["id"]
        call = partial(own, request, execute) if own else partial(execute, request)
        state = dict(request.state) if isinstance(request.state, dict) else {}
        try:
            found = await tool_result(name, dict(request.tool_call["args"]), state, call)
        except ToolFailedError as error:
            return _message(str(error), name, call_id, status="error")
        return _message(found, name, call_id) if _is_plain(found) else found

    setattr(seen, _MARK, True)
    node._awrap_tool_call = seen


def _message(found: Any, name: str, call_id: str, *, status: str = "success") -> Any:
    from langchain_core.messages import ToolMessage

    content = found if isinstance(found, str) else to_json(found).decode()
    return ToolMessage(content=content, name=name, tool_call_id=call_id, status=status)


def _is_plain(found: Any) -> bool:
    """Whether it is what a double gives; a tool node itself gives messages and commands."""
    if isinstance(found, list):
        return all(map(_is_plain, found))
    return found is None or isinstance(found, str | int | float | dict)
