"""What every kind of agent must do; a new adapter needs an example here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.remote_examples import WAITING, remote_agent

from evaldesk.agents import AGENTS, Agent
from evaldesk.engine.attempt import Attempt
from evaldesk.engine.bounds import turn_bound
from evaldesk.engine.player import play_turn
from evaldesk.model import ModelOptions, Session, TurnRecord

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what a framework warns of is not ours

LITELLM = '''
from evaldesk import LlmAgent

def roll_die(sides: int, state: dict) -> int:
    """Roll a die."""
    state["rolls"] = [*state.get("rolls", []), sides]
    return sides

root_agent = LlmAgent(name="dice", model="demo/dice?mistakes=0", tools=[roll_die], instruction="Roll.")
'''

PYTHON = '''
import asyncio
from evaldesk.model import Event, ToolCall

async def root_agent(message, state):
    """Rolls."""
    if message == "break":
        raise ValueError("broken")
    if message == "wait":
        yield Event("log", text="waiting")
        await asyncio.sleep(3600)
    if message.startswith("Roll a d"):
        sides = int(message.removeprefix("Roll a d"))
        await asyncio.sleep(0)
        call = ToolCall("roll_die", {"sides": sides})
        yield Event("tool_call", call=call)
        state["rolls"] = [*state.get("rolls", []), sides]
        yield Event("tool_result", call=call, result=sides, duration_ms=0.1)
        yield f"got {sides}"
    else:
        yield "hello"
'''


OSMOSIS = """
import asyncio
import json
from osmosis_ai.rollout import RolloutAgentLoop

TOOL = {"type": "function", "function": {"name": "roll_die", "description": "Roll a die.", "parameters": {
    "type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}}}

class Dice(RolloutAgentLoop):
    name = "dice"

    def get_tools(self, request):
        return [TOOL]

    async def run(self, ctx):
        messages = list(ctx.request.messages)
        if messages[-1]["content"] == "break":
            raise ValueError("broken")
        if messages[-1]["content"] == "wait":
            await asyncio.sleep(3600)
        for _ in range(ctx.request.max_turns):
            result = await ctx.chat(messages)
            messages.append(result.message)
            for call in result.tool_calls:
                sides = json.loads(call["function"]["arguments"])["sides"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(sides)})
            if not result.has_tool_calls:
                break
        return ctx.complete(messages)

root_agent = Dice
"""

BENCHMARK = '''
import asyncio

async def root_agent(instance, metadata):
    """Rolls."""
    if instance.question == "break":
        raise ValueError("broken")
    if instance.question == "wait":
        await asyncio.sleep(3600)
    history, said = [], "hello"
    if instance.question.startswith("Roll a d"):
        said = instance.question.removeprefix("Roll a d")
        history = [
            {"id": 1, "action": "roll_die", "args": {"sides": int(said)}},
            {"id": 2, "observation": "roll_die", "cause": 1, "content": said},
        ]
    history.append({"id": 3, "action": "message", "source": "agent", "args": {"content": f"got {said}"}})
    return {"test_result": {}, "history": history}
'''


@dataclass(frozen=True)
class Example:
    """An agent that rolls on `Roll a d6`, and sessions in which it breaks or waits.

    `model` is what a run names for an agent that has none of its own; `remote` is the kind of one that is not imported.
    """

    source: str
    has_model: bool
    broken: Session
    waiting: Session
    package: str = ""
    model: str | None = None
    has_tools: bool = False
    keeps_state: bool = True
    remote: str = ""
    calls_tools: bool = True
    n_usages: int | None = None
    can_wait: bool = True

    def session(self, session_id: str) -> Session:
        return Session(session_id, model=self.model)


def _remote(kind: str, *, has_model: bool = False, **more: Any) -> Example:
    broken = Session("broken", model_options=ModelOptions(n_retries=0))
    return Example("", has_model, broken, Session("waiting"), remote=kind, **more)


def _framework(source: str, package: str, *, has_model: bool = True, n_usages: int | None = None) -> Example:
    return Example(
        source,
        has_model=has_model,
        broken=Session("broken"),
        waiting=Session("waiting"),
        package=package,
        n_usages=n_usages,
        has_tools=True,
    )


EXAMPLES = {
    "adk": _framework(adk_source.ROLLER, "google.adk"),
    "langgraph": _framework(langgraph_source.ROLLER, "langgraph", has_model=False, n_usages=2),
    "openai_agents": _framework(openai_agents_source.ROLLER, "agents"),
    "pydantic_ai": _framework(pydantic_ai_source.ROLLER, "pydantic_ai"),
    "adk_server": _remote("adk_server"),
    "benchmark": Example(
        BENCHMARK, has_model=False, keeps_state=False, broken=Session("broken"), waiting=Session("waiting")
    ),
    "command": _remote("command"),
    "http": _remote("http", has_tools=True),
    "http_chat": _remote("http_chat", has_model=True, keeps_state=False, calls_tools=False, n_usages=1),
    "litellm": Example(
        LITELLM,
        has_model=True,
        has_tools=True,
        broken=Session("broken", model="demo/none"),
        waiting=Session("waiting", model="demo/dice?delay_ms=3600000", is_streaming=True),
    ),
    "osmosis": Example(
        OSMOSIS,
        has_model=False,
        has_tools=True,
        keeps_state=False,
        model="demo/dice?mistakes=0",
        broken=Session("broken"),
        waiting=Session("waiting"),
    ),
    "replay": _remote("replay", can_wait=False),
    "python": Example(PYTHON, has_model=False, broken=Session("broken"), waiting=Session("waiting")),
}


@pytest.fixture(params=list(AGENTS))
def example(request: pytest.FixtureRequest) -> Example:
    assert request.param in EXAMPLES, f"the adapter {request.param} needs an example"
    found = EXAMPLES[request.param]
    if found.package:
        pytest.importorskip(found.package, reason="not installed; `make adapters` installs it")
    return found


@pytest.fixture
def agent(example: Example, loaded: Any, tmp_path: Path) -> Iterator[Agent]:
    if example.remote:
        with remote_agent(example.remote, tmp_path) as agent:
            yield agent
    else:
        yield loaded(example.source)


def test_it_describes_itself(agent: Agent, example: Example) -> None:
    described = agent.describe()

    assert described.name
    assert described.kind in AGENTS
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


async def test_usage_is_told_for_each_call_of_a_model(agent: Agent, example: Example, play: Any) -> None:
    events = await play(agent, example.session("s"), "Roll a d6")

    usages = [event.usage for event in events if event.usage]
    n_usages = 2 if example.has_model or example.model else 0
    assert len(usages) == (n_usages if example.n_usages is None else example.n_usages)
    assert all(usage.tokens_in > 0 and usage.tokens_out > 0 and usage.role == "agent" for usage in usages)


async def test_partial_text_comes_only_when_the_session_streams(agent: Agent, example: Example, play: Any) -> None:
    events = await play(agent, example.session("s"), "hi")

    assert not any(event.is_partial for event in events)


async def test_a_failure_is_raised_or_told(agent: Agent, example: Example, play: Any) -> None:
    said = ""

    try:
        said = "".join(event.error.message for event in await play(agent, example.broken, "break") if event.error)
    except Exception as error:
        said = str(error)

    assert said


async def test_two_sessions_at_once_do_not_meet(agent: Agent, example: Example, play: Any) -> None:
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
        await asyncio.to_thread(WAITING.wait, 20)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)


async def test_a_hang_ends_at_the_limit_of_its_turn(agent: Agent, example: Example, play: Any) -> None:
    await play(agent, example.session("warm"), "hi")
    if not example.can_wait:
        return
    attempt = Attempt()
    attempt.begin("play", 3600)

    async def bounded() -> TurnRecord:
        with turn_bound(attempt, 0.05):
            return await play_turn(agent, example.waiting, "wait", attempt=attempt)

    turn = await asyncio.wait_for(asyncio.create_task(bounded()), 20)

    assert (turn.stop_reason, turn.error and turn.error.kind, turn.answer) == ("timed_out", "timed_out", "")
