"""A simulated user who talks to an agent in a chat session, for people to watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import Agent, loading
from evaldesk.agents.users.agent import adapt, user_ref
from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.chat.sessions import SessionDesk
from evaldesk.desk.chat.simulation import SimulationDesk
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Case,
    Event,
    JsonObject,
    Session,
    SessionInit,
    TurnRecord,
    TurnSpec,
)
from evaldesk.model.options import UserConfig
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_imports")]

SCENARIO: JsonObject = {"starting_prompt": "Hello", "conversation_plan": "Roll a d6. Roll a d20."}
CASE = Case("rolls", scenario=SCENARIO, initial_session=SessionInit(state={"k": 1}))


class Host:
    """Plays agents in this process: the simulated user as it is, everybody else as an echo."""

    def __init__(self) -> None:
        self.memories: dict[str, dict[str, object]] = {}
        self.fails = False

    async def describe(self, ref: AgentRef) -> AgentDescription:
        return AgentDescription(ref.id, "test", model="demo/dice", is_demo=True)

    async def warm(self, ref: AgentRef) -> AgentDescription:
        return await self.describe(ref)

    async def forget(self, ref: AgentRef) -> None:
        """Nothing is kept."""

    async def stop_turn(self, session_id: str) -> None:
        """Nothing stops."""

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        memory = self.memories.setdefault(spec.session_id, {})
        session = Session(spec.session_id, dict(spec.state), list(spec.turns), memory=memory)
        agent: Any = self
        if spec.session_id.endswith("~user"):
            agent = adapt(None, spec.agent)
        yield await play_turn(agent, session, spec.message, attempt=Attempt())

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        if self.fails:
            raise ValueError("broken")
        yield Event("agent_message", text=f"you said {message}")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[tuple[SimulationDesk, SessionDesk, Host]]:
    folder = tmp_path / "dice"
    folder.mkdir()
    (folder / "agent.py").write_text("def root_agent(message): ...\n")
    host: Any = Host()
    settings = Settings(tmp_path, (folder,))
    store = Store.open(settings.database)
    agents = AgentDesk(settings, host)
    await agents.start()
    await agents.wait_until_ready()
    sessions = SessionDesk(store, agents, host)
    simulation = SimulationDesk(sessions, agents, host, UserConfig(max_turns=5))
    yield simulation, sessions, host
    await simulation.close()
    await sessions.close()
    await agents.close()
    store.close()


async def ended(simulation: SimulationDesk, session_id: str) -> str:
    while turn := await simulation.next_turn(session_id):
        async for _ in turn.follow():
            pass
        await asyncio.sleep(0)
    return simulation.ending(session_id)


async def test_a_scenario_is_played_as_a_chat_session(desk: Any) -> None:
    simulation, sessions, _ = desk

    session = await simulation.start("dice", CASE)
    sentence = await ended(simulation, session.id)

    stored = sessions.get(session.id)
    assert [turn.query for turn in stored.turns] == ["Hello", "Roll a d6.", "Roll a d20."], sentence
    assert stored.turns[0].answer == "you said Hello"
    assert stored.initial_state == {"k": 1}
    assert sentence == "The simulated user ended the conversation, satisfied."
    assert not simulation.is_simulated(session.id)


async def test_a_scenario_is_played_by_an_agent_that_has_just_been_edited(desk: Any, tmp_path: Path) -> None:
    simulation, sessions, _ = desk
    (tmp_path / "dice" / "agent.py").write_text("def root_agent(message): ...  # and not asked yet what it is\n")
    await simulation._agents.look_again()

    session = await simulation.start("dice", CASE)
    await ended(simulation, session.id)

    assert len(sessions.get(session.id).turns) == 3


async def test_a_turn_knows_who_asked(desk: Any) -> None:
    simulation, sessions, _ = desk
    session = await simulation.start("dice", CASE)
    running = sessions.find_running_turn(session.id)
    await ended(simulation, session.id)

    async for _ in (await sessions.start_turn(session.id, "And once more.")).follow():
        pass

    said = [turn.asked_by for turn in sessions.get(session.id).turns]
    assert running is None or running.asked_by == "simulated"  # on a busy machine it is over by now
    assert said == ["simulated", "simulated", "simulated", "person"]


async def test_an_agent_that_fails_ends_it(desk: Any) -> None:
    simulation, sessions, host = desk
    host.fails = True

    session = await simulation.start("dice", CASE)
    sentence = await ended(simulation, session.id)

    assert "not answered" in sentence
    assert len(sessions.get(session.id).turns) == 1


async def test_a_user_whom_nobody_can_play_is_said(desk: Any) -> None:
    simulation, sessions, _ = desk
    scenario: JsonObject = {"conversation_plan": "Roll.", "user": "os:system"}

    session = await simulation.start("dice", Case("c", scenario=scenario))

    assert "os:system" in await ended(simulation, session.id)
    assert sessions.get(session.id).turns == ()


async def test_only_scenarios_of_known_agents_are_watched(desk: Any) -> None:
    simulation, _, _ = desk

    with pytest.raises(UsageError, match="scenario"):
        await simulation.start("dice", Case("c"))
    with pytest.raises(NotFoundError):
        await simulation.start("os:system", CASE)


async def test_the_agent_that_offers_the_user_is_loaded_once_for_a_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offers_a_user.py").write_text(
        "def root_agent(message): ...\nuser_response_fn = lambda state: f'{state.n_turns}'\n"
    )
    agent = AgentRef("dice", "offers_a_user:root_agent", root=str(tmp_path), folder=str(tmp_path))
    loaded: list[AgentRef] = []
    load_agent = loading.load_agent

    def noted(ref: AgentRef) -> Agent:
        loaded.append(ref)
        return load_agent(ref)

    monkeypatch.setattr(loading, "load_agent", noted)
    session, user = Session("s"), adapt(None, user_ref(agent, {}, UserConfig(), ""))

    for _ in range(2):
        [said] = [event.text async for event in user.reply(session, "")]  # type: ignore[union-attr]
        session.turns.append(TurnRecord(said))

    assert ([turn.query for turn in session.turns], loaded) == (["0", "1"], [agent])
