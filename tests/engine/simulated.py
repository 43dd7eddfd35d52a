"""What tests of simulated users share: an agent that repeats, and its trials."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Case,
    Event,
    JsonValue,
    Limits,
    Session,
    TrialResult,
    TrialSpec,
)

REF = AgentRef("echo", "scenario_agents:agent")
SCENARIO: dict[str, JsonValue] = {"starting_prompt": "Hello", "conversation_plan": "Book a flight. Then leave."}


class Echo:
    """Answers what it was told, and keeps what it saw."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []

    def describe(self) -> AgentDescription:
        return AgentDescription("echo", "test")

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        self.sessions.append(session)
        session.state["n"] = len(session.turns) + 1
        yield Event("agent_message", text=f"you said {message}")


def spec(scenario: dict[str, JsonValue], **fields: Any) -> TrialSpec:
    return TrialSpec(1, 0, 0, Case("c", scenario=scenario), REF, limits=Limits(30), **fields)


def queries(result: TrialResult) -> list[str]:
    return [turn.query for turn in result.transcript.turns]
