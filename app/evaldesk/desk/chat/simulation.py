"""Chats in which a simulated user talks to an agent, for people to watch."""

from __future__ import annotations

import asyncio
import os

from evaldesk.agents.users.agent import END, user_ref
from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.chat.running_turn import RunningTurn
from evaldesk.desk.chat.sessions import SessionDesk, TurnPlayer
from evaldesk.engine.worker.player import DEMO_USER
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.model import AgentRef, Case, TurnRecord, TurnSpec
from evaldesk.model.options import USER_VARIABLE, UserConfig
from evaldesk.model.stored import StoredSession
from evaldesk.wire import to_json
from evaldesk.wording.words import ENDINGS

USER_TIMEOUT_S = 120.0


class SimulationDesk:
    """Plays scenarios as chat sessions, turn after turn, until the user, the agent or a person ends them."""

    def __init__(self, sessions: SessionDesk, agents: AgentDesk, host: TurnPlayer, user: UserConfig) -> None:
        self._sessions = sessions
        self._agents = agents
        self._host = host
        self._user = user
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changes: dict[str, asyncio.Event] = {}
        self._endings: dict[str, str] = {}

    async def start(self, agent_id: str, case: Case) -> StoredSession:
        """Begin to play a scenario in a new session; returns once its first turn runs, or it ended without one.

        Raises NotFoundError for the agent, UsageError for a case without a scenario.
        """
        if case.scenario is None:
            raise UsageError("Only a case with a scenario can be watched; this case has turns.")
        agent = await self._agents.get_described_agent(agent_id)
        default = os.environ.get(USER_VARIABLE, "") or (DEMO_USER if agent.is_demo else "")
        state = to_json(case.initial_state).decode()
        session = await asyncio.to_thread(self._sessions.create, agent.id, state, f"{case.id}, simulated")
        ref = user_ref(agent.ref, case.scenario, self._user, default)
        self._changes[session.id] = asyncio.Event()
        self._tasks[session.id] = asyncio.create_task(self._play(session.id, ref))
        await self.next_turn(session.id)
        return session

    def is_simulated(self, session_id: str) -> bool:
        """Whether a simulated user still talks in that session."""
        return session_id in self._tasks

    def ending(self, session_id: str) -> str:
        """How the conversation ended, in a sentence; empty while it goes on, and when the desk was started anew."""
        return self._endings.get(session_id, "")

    async def next_turn(self, session_id: str) -> RunningTurn | None:
        """The running turn, or the next one; None when the simulation is over."""
        while session_id in self._tasks:
            turn = self._sessions.find_running_turn(session_id)
            if turn:
                return turn
            change = self._changes[session_id]
            change.clear()
            await change.wait()
        return None

    async def close(self) -> None:
        """End every conversation."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, session_id: str, user: AgentRef) -> None:
        try:
            self._endings[session_id] = await self._converse(session_id, user)
        except EvaldeskError as error:
            self._endings[session_id] = f"The simulated user stopped: {error}"
        finally:
            del self._tasks[session_id]
            self._changes.pop(session_id).set()

    async def _converse(self, session_id: str, user: AgentRef) -> str:
        while True:
            message = await self._user_turn(session_id, user)
            if message.error:
                return f"The simulated user failed; the agent did not: {message.error.message}"
            if not message.answer:
                reason = next((event.text for event in message.events if event.author == END), "")
                return ENDINGS.get(reason, "The simulated user ended the conversation.")
            turn = await self._sessions.start_turn(session_id, message.answer, asked_by="simulated")
            self._changes[session_id].set()
            async for _ in turn.follow():
                pass
            if turn.record is None or turn.record.stop_reason != "answered":
                return "The conversation ended with a turn that was not answered."

    async def _user_turn(self, session_id: str, user: AgentRef) -> TurnRecord:
        """The user's message after the turns of the session, as the turn of an agent."""
        session = await asyncio.to_thread(self._sessions.get, session_id)
        spec = TurnSpec(f"{session_id}~user", user, "next", session.state, session.turns, timeout_s=USER_TIMEOUT_S)
        async for item in self._host.play_turn(spec):
            if isinstance(item, TurnRecord):
                return item
        raise UsageError("its process ended before it had said anything")
