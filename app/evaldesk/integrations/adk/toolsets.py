"""Toolsets of google-adk that fail to load: ADK goes on without their tools, and a trial must not."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

from evaldesk.llm.client_wrapping import wrap_once
from evaldesk.model import ErrorRecord

TOOLSET_KIND = "toolset"
_MARK = "_notes_failures"

# The failures of an invocation, by the toolset.
FAILURES: ContextVar[dict[str, str] | None] = ContextVar("adk_toolset_failures", default=None)


def watch_toolsets() -> dict[str, str]:
    """Note the toolsets that fail to load in this context, by their name; the reasons come as they fail."""
    from google.adk.tools.base_toolset import BaseToolset

    # ADK catches the exception around this method, logs it, and asks the model without the tools (2.13).
    wrap_once(BaseToolset, "get_tools_with_prefix", _wrap_load, _MARK)
    failures: dict[str, str] = {}
    FAILURES.set(failures)
    return failures


def toolset_error(failures: dict[str, str]) -> ErrorRecord:
    """The error of a trial whose agent lacked tools."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
    sentence = f"a toolset failed to load, and the agent was asked without its tools: {reasons}"
    return ErrorRecord(TOOLSET_KIND, sentence)


def _wrap_load(load: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(load)
    async def get_tools_with_prefix(toolset: Any, *args: Any, **options: Any) -> Any:
        try:
            return await load(toolset, *args, **options)
        except Exception as error:
            failures = FAILURES.get()
            if failures is not None:
                failures[type(toolset).__name__] = _reason(error)
            raise

    return get_tools_with_prefix


def _reason(error: BaseException) -> str:
    """The first line of the innermost exception, which is the cause where a task group or a client wraps it."""
    while grouped := getattr(error, "exceptions", ()):  # an ExceptionGroup, which Python 3.10 lacks
        error = grouped[0]
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
