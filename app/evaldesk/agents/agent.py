"""What every agent is to the rest of Evaldesk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
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
        through; an `error` event ends the turn as well. One of the kind `max_turns` or `max_iterations` is no failure:
        the agent went on until its bound, the turn has no answer, and the trial is scored on what was done.
        """


class ModelCaller(ABC):
    """An agent that knows what its model calls need; of any other with a model, LiteLLM is thought to make them."""

    @abstractmethod
    def warm(self, session: Session) -> None:
        """Import what the model calls of `session` will need, so that no turn pays for it."""


class Kept(ABC):
    """Something that an adapter keeps in the memory of a session, and that is to be closed when the session ends."""

    @abstractmethod
    def close(self) -> None:
        """End it; may be called again."""


def close_kept(memory: Mapping[str, object]) -> None:
    """Close what adapters keep in the memory of a session."""
    for kept in memory.values():
        if isinstance(kept, Kept):
            kept.close()
