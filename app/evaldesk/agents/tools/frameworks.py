"""The result of a tool in a framework that calls it by itself: the double of its case, or its own result, in time.

The turn sets up the context; the wrapper around each tool, made once, asks for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.shared_loop import SendEvent
from evaldesk.agents.tools.doubles import double_of
from evaldesk.agents.tools.time_limit import TOOL_LIMIT, ToolFailedError, in_time
from evaldesk.errors import NoDoubleError
from evaldesk.model import ErrorRecord, Event, JsonObject, JsonValue, Session
from evaldesk.model.transcript import AWAITING


@dataclass(slots=True)
class ToolCalls:
    """The calls of one turn; `failure` is kept, since frameworks show a model the exceptions of a tool."""

    send: SendEvent
    failure: NoDoubleError | None = None

    def check(self) -> None:
        """Raise the failure that ends the trial, where there is one."""
        if self.failure:
            raise self.failure


_CURRENT: ContextVar[ToolCalls | None] = ContextVar("current_tool_calls", default=None)


def watched(session: Session, send: SendEvent) -> ToolCalls:
    """The calls of the turn that begins now, with its limit for each."""
    TOOL_LIMIT.set(session.limits.tool_timeout_s)
    calls = ToolCalls(send)
    _CURRENT.set(calls)
    return calls


def awaiting(names: Iterable[str]) -> Event:
    """The event that ends a turn in which these calls or nodes wait for a person."""
    named = ", ".join(dict.fromkeys(names)) or "the agent"
    return Event("error", error=ErrorRecord(AWAITING, f"waiting for a decision of a person: {named}"))


async def tool_result(
    name: str, args: JsonObject, state: dict[str, JsonValue], call: Callable[[], Awaitable[Any]]
) -> Any:
    """The result of the call. Raises ToolFailedError with the text for the model, and NoDoubleError."""
    calls = _CURRENT.get()
    try:
        outcome = await double_of(name, args, state)
    except NoDoubleError as error:
        if calls:
            calls.failure = error
        raise
    if outcome is None:
        return await in_time(name, call)
    if calls:
        await calls.send(Event("log", author=outcome.source, text=outcome.note))
    if outcome.is_error:
        raise ToolFailedError(str(outcome.result))
    return outcome.result
