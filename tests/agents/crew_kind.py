"""A kind of agent as a package brings it by an entry point: its traits, and the adapter of its objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.agents import Agent, AgentKind
from evaldesk.agents.python import PythonAgent
from evaldesk.model import AgentDescription, AgentRef, Event, Session

CREW = AgentKind("crew", "Crew", "tests.agents.crew_kind:adapt")


@dataclass(frozen=True)
class Crew:
    """An object of the package."""

    work: Callable[..., Any]


@dataclass(frozen=True)
class CrewAgent:
    """The agent around a crew."""

    inner: PythonAgent

    def describe(self) -> AgentDescription:
        """The description of its function, as a crew."""
        return replace(self.inner.describe(), kind="crew")

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """The events of its function."""
        return self.inner.reply(session, message)


def adapt(found: object, ref: AgentRef) -> Agent | None:
    """The agent around a crew; None for anything else."""
    return CrewAgent(PythonAgent(found.work, ref)) if isinstance(found, Crew) else None
