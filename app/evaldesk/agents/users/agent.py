"""The simulated user of a watched chat, as an agent: each of its turns is the next message of the user.

Its session has the turns of the chat so far; its input message is empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from evaldesk.agents.agent import AGENTS, Agent
from evaldesk.agents.users.users import User, user_of
from evaldesk.codec import msgspec
from evaldesk.model import AgentDescription, AgentRef, Case, Event, JsonValue, Session
from evaldesk.model.options import UserConfig
from evaldesk.reading.scenario import own_model
from evaldesk.wire import from_json, to_json

KIND = "evaldesk.agents.users.agent:adapt"
END = "end of a simulated conversation"  # the author of the line that says why

_MEMORY = "simulated_user"


class Table(msgspec.Struct, frozen=True):
    """The configuration of a watched chat: the scenario, the user, and the agent, a source of user functions."""

    scenario: dict[str, Any]
    config: UserConfig
    agent: AgentRef
    default_model: str = ""


def user_ref(agent: AgentRef, scenario: Mapping[str, JsonValue], config: UserConfig, default_model: str) -> AgentRef:
    """The simulated user of `scenario` as an agent."""
    table = to_json(Table(dict(scenario), config, agent, default_model)).decode()
    return AgentRef(f"{agent.id}~user", "", root=agent.root, folder=agent.folder, kind=KIND, declared=table)


def adapt(candidate: object, ref: AgentRef) -> Agent | None:
    """The user that `ref` declares."""
    return UserAgent(from_json(ref.declared, Table))


@dataclass(frozen=True, slots=True)
class UserAgent:
    """Sends the user's next message, or the reason to stop."""

    table: Table

    def describe(self) -> AgentDescription:
        """The model that plays the user."""
        model = own_model(self.table.scenario) or self.table.config.model or self.table.default_model
        return AgentDescription("simulated user", "simulated_user", model=model or None)

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Send one message of the user. Raises ModelError, and UsageError for a scenario without a user."""
        user = cast("User", session.memory.get(_MEMORY)) or self._user()
        session.memory[_MEMORY] = user
        words = await user.next(session)
        for event in words.events:
            yield event
        if words.error:
            yield Event("error", error=words.error)
        elif words.text is None:
            yield Event("log", author=END, text=words.stop or "")
        else:
            yield Event("agent_message", text=words.text)

    def _user(self) -> User:
        agent = self.table.agent
        if agent.target and not AGENTS.is_remote(agent.kind):
            from evaldesk.agents.loading import load_agent

            load_agent(agent)  # its module may offer the function that plays the user
        case = Case("watched", scenario=self.table.scenario)
        return user_of(case, agent.target, self.table.config, self.table.default_model)
