"""The tools of an agent of pydantic-ai, ended at the time limit of the turn."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

from evaldesk.agents.tool_limit import TOOL_LIMIT, ToolLateError, in_time


def with_limit(agent: Any) -> AbstractContextManager[Any]:
    """Let the agent's tools end in time inside of it, in a turn that has a limit."""
    if TOOL_LIMIT.get() is None:
        return nullcontext()
    limited: AbstractContextManager[Any] = agent.override(
        toolsets=[_limited_class()(toolset) for toolset in agent.toolsets], tools=[]
    )
    return limited


@cache
def _limited_class() -> Any:
    from pydantic_ai import ModelRetry
    from pydantic_ai.toolsets import WrapperToolset

    class Limited(WrapperToolset[Any]):  # type: ignore[misc] # the package may be missing
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            try:
                return await in_time(name, partial(super().call_tool, name, tool_args, ctx, tool))
            except ToolLateError as error:
                raise ModelRetry(str(error)) from error

    return Limited
