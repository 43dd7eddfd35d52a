"""Agents that a function makes for each session, with the real packages: nothing of what they do is lost."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.installed import skip_without
from tests.agents.test_awaiting_approval import PYDANTIC
from tests.agents.test_resumed_approvals import decided

from evaldesk.model import Decision, Session

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

SHAPES = {
    "google.adk": adk_source.ROLLER,
    "agents": openai_agents_source.ROLLER,
    "langgraph": langgraph_source.ROLLER,
    "pydantic_ai": pydantic_ai_source.ROLLER,
}
MAKE = """
made = root_agent
n_made = 0

{async_}def root_agent({parameters}):
    global n_made
    n_made += 1
    return made
"""


def factory_of(source: str, parameters: str = "", async_: str = "") -> str:
    return source + MAKE.format(parameters=parameters, async_=async_)


@pytest.mark.parametrize("package", SHAPES)
@pytest.mark.parametrize(("parameters", "async_"), [("", ""), ("state", ""), ("*, session, size=3", "async ")])
async def test_the_agent_that_a_function_makes_keeps_its_calls_its_state_and_its_tokens(
    loaded: Any, played: Any, package: str, parameters: str, async_: str
) -> None:
    skip_without(package)
    agent = loaded(factory_of(SHAPES[package], parameters, async_))
    session = Session("s", state={"rolls": [1]})

    turn = await played(agent, session, "Roll a d6")

    assert (turn.error, turn.answer) == (None, "got 6")
    assert [(call.name, call.args) for call in turn.tool_calls] == [("roll_die", {"sides": 6})]
    assert [usage.tokens_in for usage in turn.usages] == [11, 11]
    assert session.state["rolls"] == [1, 6]
    assert turn.captures == ("adapter",)


@pytest.mark.parametrize("package", SHAPES)
async def test_a_factory_is_described_as_its_agent(loaded: Any, package: str) -> None:
    skip_without(package)

    made, own = loaded(factory_of(SHAPES[package])).describe(), loaded(SHAPES[package]).describe()

    assert made == own


NOTED = """
import asyncio
made, made_on, played_on, own = root_agent, [], [], decided

async def decided(word):
    played_on.append(asyncio.get_running_loop())
    return await own(word)

async def root_agent(state):
    made_on.append(asyncio.get_running_loop())
    return made
"""


@pytest.mark.parametrize("is_described", [True, False])
@pytest.mark.parametrize("package", SHAPES)
async def test_a_coroutine_function_makes_an_agent_on_the_loop_that_plays_it(
    loaded: Any, played: Any, package: str, is_described: bool
) -> None:
    skip_without(package)
    agent = loaded(SHAPES[package] + NOTED)
    module = sys.modules["some_agent.agent"]
    if is_described:
        agent.describe()
    for name in ("a", "b"):
        turn = await played(agent, Session(name), "Roll a d6")

        assert (turn.error, turn.answer) == (None, "got 6")
        assert module.made_on[-1] is module.played_on[-1]


async def test_each_session_has_an_agent_of_its_own_for_all_of_its_turns(loaded: Any, played: Any) -> None:
    source = """
class Counter:
    def __init__(self, state):
        self.n, self.start = 0, state.get("start", 0)
    def reply(self, message):
        self.n += 1
        return str(self.start + self.n)

def root_agent(state):
    return Counter(state)
"""
    agent = loaded(source)
    first, second = Session("a", state={"start": 10}), Session("b")

    said = [(await played(agent, session, "hi")).answer for session in (first, first, second, first)]

    assert said == ["11", "12", "1", "13"]


async def test_an_agent_of_a_factory_resumes_after_a_decision(loaded: Any) -> None:
    skip_without("pydantic_ai")

    turn = await decided(loaded, factory_of(PYDANTIC), Decision("approve"), is_same=False)

    assert (turn.error, turn.answer) == (None, "got 6")


async def test_a_factory_without_an_agent_is_an_error(loaded: Any, played: Any) -> None:
    agent = loaded("def root_agent():\n    return 'hello'\n")

    turn = await played(agent, Session("s"), "hi")

    assert agent.describe().kind == "python"
    assert turn.error
    assert "gave str: an agent must take a message, and a function without one must make an agent" in turn.error.message


async def test_a_factory_that_needs_a_session_state_is_described_by_its_docstring(loaded: Any, played: Any) -> None:
    source = '''
def root_agent(state):
    """Serves a customer."""
    name = state["customer"]
    return lambda message: f"{name}: {message}"
'''
    agent = loaded(source)

    assert agent.describe().description == "Serves a customer."
    turn = await played(agent, Session("s", state={"customer": "Ann"}), "hi")
    assert (turn.error, turn.answer) == (None, "Ann: hi")


@pytest.mark.parametrize("annotation", ["RunnableConfig", "'RunnableConfig'"])
async def test_a_graph_factory_gets_a_config_as_on_its_own_server(annotation: str, loaded: Any, play: Any) -> None:
    skip_without("langgraph")
    source = f"{langgraph_source.ROLLER}\nfrom langchain_core.runnables import RunnableConfig\nmade = root_agent\n"
    source += (
        f"async def root_agent(config: {annotation}):\n    assert config['configurable'] == {{}}\n    return made\n"
    )
    session = Session("s")

    await play(loaded(source), session, "Roll a d6")

    assert session.turns[0].answer == "got 6"
    assert [call.name for call in session.turns[0].tool_calls] == ["roll_die"]
