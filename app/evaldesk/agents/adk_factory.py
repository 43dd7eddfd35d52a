"""Agents of google-adk that a coroutine function makes, as ADK's own AgentEvaluator knows them.

`get_agent_async` gives the agent and an exit stack of what it opened: a toolset's connection, say, which belongs to the
task that made it. So each turn makes the agent anew, and closes what was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.adk import AdkAgent, adapt
from evaldesk.errors import AgentError
from evaldesk.model import AgentDescription, AgentRef, Event, Session


@dataclass(frozen=True, slots=True)
class MadeAgent:
    """An agent that `make` makes for each turn."""

    make: Callable[[], Awaitable[Any]]
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """The agent as it is made now. Raises what making it raises."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._described()).result()

    async def reply(self, session: Session, message: str) -> AsyncGenerator[Event]:
        """Make the agent and play one invocation, as AdkAgent does."""
        async with self._made() as agent, aclosing(agent.reply(session, message)) as events:
            async for event in events:
                yield event

    async def _described(self) -> AgentDescription:
        async with self._made() as agent:
            return agent.describe()

    @asynccontextmanager
    async def _made(self) -> AsyncIterator[AdkAgent]:
        made = await self.make()
        found, opened = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        try:
            agent = adapt(found, self.ref)
            if agent is None:
                raise AgentError(f"{self.ref.target} gave a {type(found).__name__}, not an agent of google-adk")
            yield agent
        finally:
            if opened is not None:
                await opened.aclose()
