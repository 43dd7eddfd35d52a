"""What every agent is to the rest of Evaldesk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from evaldesk.model import AgentDescription, Event, Session


class Agent(Protocol):
    """An agent that can be asked what it is, and talked to.

    An adapter translates what a user wrote into this.
    """

    def describe(self) -> AgentDescription:
        """What the agent says of itself."""

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Yield what happens until the agent has answered `message`.

        `at_ms` is left at 0 and the events `user_message` and `state_delta` are left out: whoever plays the turn
        adds them. A partial `agent_message` comes only when `session.is_streaming`. What the agent raises passes
        through; an `error` event ends the turn as well.
        """
