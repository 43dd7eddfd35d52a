"""Agents of frameworks without hooks of ours: called as functions, and seen by their requests and spans.

Their session is kept here: an island gives the function that plays one message in it. (docs/agents.md)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from evaldesk.agents.python import PythonAgent
from evaldesk.llm.retry_events import note_hidden_work, note_unseen
from evaldesk.model import AgentDescription, AgentRef, Event, Session, ToolDescription

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CalledAgent:
    """An agent around `inner`, whose function plays one message of a session."""

    inner: PythonAgent
    description: AgentDescription

    def describe(self) -> AgentDescription:
        """The description of the framework's object."""
        return self.description

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Call the framework, and yield what it tells beside its requests and spans."""
        if "state" in self.description.unseen:
            note_unseen("state")
        if not self.description.tells_calls:
            note_hidden_work()
        async with aclosing(cast("Any", self.inner.reply(session, message))) as events:
            async for event in events:
                yield event


def called_agent(
    ref: AgentRef,
    kind: str,
    play: Callable[..., Any],
    *,
    name: object = "",
    instruction: object = "",
    model: object = None,
    tools: Iterable[object] = (),
    shows_state: bool = False,
    tells_calls: bool = False,
) -> CalledAgent:
    """The agent whose messages `play(message, session)` plays; with `tells_calls` that gives an event for each call."""
    description = AgentDescription(
        name=name if isinstance(name, str) and name else ref.id,
        kind=kind,
        instruction=instruction if isinstance(instruction, str) else "",
        model=model if isinstance(model, str) and model else None,
        tools=tuple(ToolDescription(tool_name) for tool_name in map(_tool_name, tools) if tool_name),
        unseen=() if shows_state else ("state",),
        tells_calls=tells_calls,
    )
    return CalledAgent(PythonAgent(play, ref), description)


def session_object(session: Session, make: Callable[[], T]) -> T:
    """The framework's own object of the session, made for its first message."""
    if _MEMORY not in session.memory:
        session.memory[_MEMORY] = make()
    return cast("T", session.memory[_MEMORY])


_MEMORY = "framework"


def _tool_name(tool: object) -> str:
    name = getattr(tool, "name", None) or getattr(tool, "__name__", "")
    return name if isinstance(name, str) else ""
