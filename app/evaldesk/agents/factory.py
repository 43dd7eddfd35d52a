"""Agents that a function makes, one for each session: it takes no message, and gives an agent of any kind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from evaldesk.agents.agent import Agent, Resumable
from evaldesk.errors import AgentError
from evaldesk.model import AgentDescription, AgentRef, Event, Session
from evaldesk.model.decisions import Decided

OFFERED = frozenset({"state", "session"})
MEMORY = "made"

Adapt = Callable[[object, AgentRef], Agent]


def is_factory(found: object) -> bool:
    """Whether it is a function without a place for a message, which so cannot be the agent itself."""
    if not inspect.isfunction(found) or inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        return False
    parameters = inspect.signature(found).parameters.values()
    needed = [each for each in parameters if each.default is each.empty or each.name in OFFERED]
    return all(each.name in OFFERED and each.kind is not each.VAR_POSITIONAL for each in needed)


@dataclass(slots=True)
class FactoryAgent:
    """Makes an agent when a session begins, and plays its turns with that, as its own adapter does."""

    make: Callable[..., Any]
    ref: AgentRef
    adapt: Adapt
    _description: AgentDescription | None = field(default=None, repr=False)

    def describe(self) -> AgentDescription:
        """The description of an agent that is made for that; of the function alone where it needs a session's state."""
        if self._description is None:
            try:
                with ThreadPoolExecutor(1) as thread:
                    self._description = thread.submit(asyncio.run, self._made(Session("describe"))).result().describe()
            except Exception:  # of the user's code, which the first turn will tell with its trace
                summary = (inspect.getdoc(self.make) or "").partition("\n\n")[0].replace("\n", " ")
                return AgentDescription(name=self.ref.id, kind="python", description=summary)
        return self._description

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """The events of the session's own agent. Passes on the exceptions of making it."""
        agent = await self._of(session)
        async with aclosing(cast("Any", agent.reply(session, message))) as events:
            async for event in events:
                yield event

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """As `reply`, with what a person decided. Raises AgentError where that agent cannot go on."""
        agent = await self._of(session)
        if not isinstance(agent, Resumable):
            raise AgentError(f"{self.ref.target} made an agent that cannot go on after a decision")
        async with aclosing(cast("Any", agent.resume(session, message, decided))) as events:
            async for event in events:
                yield event

    async def _of(self, session: Session) -> Agent:
        known = session.memory.get(MEMORY)
        if known is None:
            known = session.memory[MEMORY] = await self._made(session)
        return cast("Agent", known)

    async def _made(self, session: Session) -> Agent:
        offered = {"state": session.state, "session": session}
        names = inspect.signature(self.make).parameters
        found = self.make(**{name: offered[name] for name in names if name in offered})
        found = await found if inspect.isawaitable(found) else found
        if found is None or isinstance(found, str | int | float | dict | list):
            raise AgentError(
                f"{self.ref.target} gave {type(found).__name__}: an agent must take a message, and a function without "
                "one must make an agent"
            )
        return self.adapt(found, self.ref)
