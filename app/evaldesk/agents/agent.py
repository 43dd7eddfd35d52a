"""The interface of every agent to the rest of Evaldesk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from evaldesk.model import AgentDescription, Event, Session


class Agent(Protocol):
    """An agent that describes itself and answers messages.

    An adapter translates a user's object into this.
    """

    def describe(self) -> AgentDescription:
        """The agent's description of itself."""

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Yield the events until the agent has answered `message`.

        `at_ms` is left at 0 and the events `user_message` and `state_delta` are left out: the player of the turn adds
        them. A partial `agent_message` comes only when `session.is_streaming`. Exceptions of the agent pass through; an
        `error` event ends the turn as well. One of the kind `max_turns` or `max_iterations` is no failure: the agent
        went on until its bound, the turn has no answer, and the trial is scored on the events so far.
        """


class ModelCaller(ABC):
    """An agent that knows the packages of its model calls; any other agent with a model is assumed to use LiteLLM."""

    @abstractmethod
    def warm(self, session: Session) -> None:
        """Import the packages for the model calls of `session`, so that no turn pays for it."""


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
