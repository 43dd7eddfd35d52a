"""What every kind of agent must do; a new adapter needs an example in contract_examples."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.agents.contract_examples import EXAMPLES, Example
from tests.agents.installed import skip_without
from tests.agents.remote_examples import WAITING, remote_agent

from evaldesk import registry
from evaldesk.agents import AGENTS, Agent, AgentKind
from evaldesk.agents.agent import AgentKinds
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn, turn_bound
from evaldesk.model import TurnRecord

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what a framework warns of is not ours


@pytest.fixture(params=[*AGENTS, "crew"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AgentKind:
    """Each kind of the table, and one that a package brings."""
    if request.param in AGENTS:
        return AGENTS[request.param]
    points = [EntryPoint("crew", "tests.agents.crew_kind:CREW", "evaldesk.agents")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "evaldesk.agents" else [])
    brought = AgentKinds(AGENTS.builtin)
    monkeypatch.setattr("evaldesk.agents.loading.AGENTS", brought)
    return brought["crew"]


@pytest.fixture
def example(kind: AgentKind) -> Example:
    assert kind.name in EXAMPLES, f"the adapter {kind.name} needs an example"
    found = EXAMPLES[kind.name]
    assert bool(found.remote) == kind.is_remote
    if found.package:
        skip_without(found.package)
    return found


@pytest.fixture
def agent(example: Example, loaded: Any, tmp_path: Path) -> Iterator[Agent]:
    if example.remote:
        with remote_agent(example.remote, tmp_path) as agent:
            yield agent
    else:
        yield loaded(example.source)


def test_the_description_has_name_and_kind(agent: Agent, example: Example, kind: AgentKind) -> None:
    described = agent.describe()

    assert described.name
    assert described.kind == kind.name
    assert bool(described.model) == example.has_model
    assert [tool.name for tool in described.tools] == (["roll_die"] if example.has_tools else [])


async def test_a_turn_of_text(agent: Agent, example: Example, play: Any) -> None:
    events = await play(agent, example.session("s"), "hi")

    [said] = [event for event in events if event.kind == "agent_message"]
    assert said.text


async def test_a_tool_call_has_its_result_and_changes_the_state(agent: Agent, example: Example, play: Any) -> None:
    session = example.session("s")

    events = await play(agent, session, "Roll a d6")

    kinds = [event.kind for event in events if event.kind not in {"usage", "log"}]
    if not example.calls_tools:
        assert kinds == ["agent_message"]
        return
    assert kinds == ["tool_call", "tool_result", "agent_message"]
    called, given = (event for event in events if event.kind.startswith("tool"))
    assert called.call is given.call or called.call == given.call
    assert (called.call.name, called.call.args) == ("roll_die", {"sides": 6})
    assert (str(given.result), given.is_error) == ("6", False)  # some frameworks give text back
    assert given.duration_ms is None or given.duration_ms >= 0
    assert session.state == ({"rolls": [6]} if example.keeps_state else {})


async def test_a_state_that_the_kind_hides_is_noted_as_unseen_in_the_turn(
    agent: Agent, example: Example, kind: AgentKind, played: Any
) -> None:
    turn: TurnRecord = await played(agent, example.session("s"), "hi")

    hidden = kind.visibility.without(agent.describe().unseen).state != "whole"
    is_changed = any(event.kind == "state_delta" for event in turn.events)
    assert ("state" in turn.unseen) == (hidden and not is_changed)


async def test_usage_is_reported_for_each_model_call(agent: Agent, example: Example, play: Any) -> None:
    events = await play(agent, example.session("s"), "Roll a d6")

    usages = [event.usage for event in events if event.usage]
    assert len(usages) == example.n_usages
    assert all(usage.tokens_in > 0 and usage.tokens_out > 0 and usage.role == "agent" for usage in usages)


async def test_partial_text_comes_only_when_the_session_streams(agent: Agent, example: Example, play: Any) -> None:
    events = await play(agent, example.session("s"), "hi")

    assert not any(event.is_partial for event in events)


async def test_a_failure_is_raised_or_an_error_event(agent: Agent, example: Example, play: Any) -> None:
    said = ""

    try:
        said = "".join(event.error.message for event in await play(agent, example.broken, "break") if event.error)
    except Exception as error:
        said = str(error)

    assert said


async def test_two_concurrent_sessions_are_isolated(agent: Agent, example: Example, play: Any) -> None:
    sessions = [example.session(str(sides)) for sides in (6, 8, 10, 12)]

    await asyncio.gather(*(play(agent, session, f"Roll a d{session.id}") for session in sessions))

    if example.keeps_state:
        assert [session.state["rolls"] for session in sessions] == [[6], [8], [10], [12]]
    assert all(session.id in session.turns[0].answer for session in sessions)


async def test_a_waiting_turn_can_be_cancelled(agent: Agent, example: Example, play: Any) -> None:
    await play(agent, example.session("warm"), "hi")
    if not example.can_wait:
        return
    WAITING.clear()
    task = asyncio.create_task(play(agent, example.waiting, "wait"))
    for _ in range(10):
        await asyncio.sleep(0)
    if example.remote not in {"", "command"}:
        await asyncio.to_thread(WAITING.wait, 60)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 300)


async def test_a_hang_ends_at_the_limit_of_its_turn(agent: Agent, example: Example, play: Any) -> None:
    await play(agent, example.session("warm"), "hi")
    if not example.can_wait:
        return
    attempt = Attempt()
    attempt.begin("play", 3600)

    async def bounded() -> TurnRecord:
        with turn_bound(attempt, 0.05):
            return await play_turn(agent, example.waiting, "wait", attempt=attempt)

    turn = await asyncio.wait_for(asyncio.create_task(bounded()), 300)

    assert (turn.stop_reason, turn.error and turn.error.kind, turn.answer) == ("timed_out", "timed_out", "")
