"""The tools of an agent of pydantic-ai, with the doubles of the case and the limit of the turn."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

from evaldesk.agents.doubles import CURRENT_DOUBLES
from evaldesk.agents.framework_tools import tool_result
from evaldesk.agents.tool_limit import TOOL_LIMIT, ToolFailedError


def with_watched_tools(agent: Any) -> AbstractContextManager[Any]:
    """Let the agent's tools heed doubles and end in time inside of it, in a turn that has either."""
    if TOOL_LIMIT.get() is None and CURRENT_DOUBLES.get() is None:
        return nullcontext()
    seen: AbstractContextManager[Any] = agent.override(
        toolsets=[_watched_class()(toolset) for toolset in agent.toolsets], tools=[]
    )
    return seen


@cache
def _watched_class() -> Any:
    from pydantic_ai import ModelRetry
    from pydantic_ai.toolsets import WrapperToolset

    class Watched(WrapperToolset[Any]):  # type: ignore[misc] # the package may be missing
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            state = ctx.deps if isinstance(ctx.deps, dict) else {}
            call = partial(super().call_tool, name, tool_args, ctx, tool)
            try:
                return await tool_result(name, dict(tool_args), state, call)
            except ToolFailedError as error:
                raise ModelRetry(str(error)) from error

    return Watched
