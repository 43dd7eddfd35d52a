"""An OpenAI-compatible endpoint on loopback, and a way to play a turn without an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served

from evaldesk.agents import Agent, load_agent
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn
from evaldesk.llm import ModelReply
from evaldesk.llm.client import open_litellm
from evaldesk.model import AgentRef, Event, JsonObject, Session, TurnRecord


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    open_litellm()  # seconds that no test's own time limit should pay
    with served() as endpoint:
        yield endpoint


@pytest.fixture(params=["direct", "litellm"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either way to an endpoint, and no other: straight to it, or through LiteLLM."""

    async def never(*_: object) -> ModelReply:
        raise AssertionError(f"not asked through {request.param}")

    if request.param == "litellm":
        monkeypatch.setattr("evaldesk.llm.attempts.own_endpoint", lambda call: None)
    monkeypatch.setattr(f"evaldesk.llm.{'client' if request.param == 'direct' else 'direct'}.ask", never)
    return str(request.param)


Play = Callable[..., Any]


@pytest.fixture
def play() -> Play:
    async def play(agent: Agent, session: Session, message: str) -> list[Event]:
        before = dict(session.state)
        events = [event async for event in agent.reply(session, message)]
        kept = tuple(event for event in events if not event.is_partial)
        session.turns.append(TurnRecord(message, kept, before, dict(session.state)))
        return events

    return play


@pytest.fixture
def played() -> Play:
    """A turn as the engine plays it, which listens to the model calls in it and makes a value of what is raised."""

    async def played(agent: Agent, session: Session, message: str) -> TurnRecord:
        return await play_turn(agent, session, message, attempt=Attempt())

    return played


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Agent]:
    n = 0

    def loaded(source: str, attribute: str = "root_agent", **fields: Any) -> Agent:
        nonlocal n
        n += 1
        root = tmp_path / f"root{n}"
        folder = root / "some_agent"
        folder.mkdir(parents=True)
        folder.joinpath("agent.py").write_text(source)
        ref = AgentRef("some_agent", f"some_agent.agent:{attribute}", root=str(root), folder=str(folder), **fields)
        return load_agent(ref)

    return loaded


def results(events: Sequence[Event]) -> list[tuple[str, JsonObject, Any, bool]]:
    """The tool results among `events` as (name, args, result, is_error)."""
    return [
        (event.call.name, event.call.args, event.result, event.is_error)
        for event in events
        if event.kind == "tool_result" and event.call
    ]


@pytest.fixture(name="results")
def results_fixture() -> Callable[..., Any]:
    return results


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, own_imports: None) -> None:
    """No key and no setting of the machine reaches a test; scripted words come without a pause."""
    for name in ("EVALDESK_MODEL", "EVALDESK_DEMO_MISTAKES", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "a-key-for-the-tests")
    monkeypatch.setenv("EVALDESK_DEMO_DELAY_MS", "0")
