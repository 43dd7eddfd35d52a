"""Agents whose tools get an object of their own in place of the session state, with the real packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agents import openai_agents_source, pydantic_ai_source
from tests.agents.installed import skip_without

from evaldesk.agents import declared_refs
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import Session

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

OBJECT = """
from dataclasses import dataclass, field

@dataclass
class Shop:
    orders: list = field(default_factory=list)
    n_made: int = 0

n_made = 0
"""
FUNCTIONS = """
def make_deps(state):
    global n_made
    n_made += 1
    return Shop(list(state.get("orders", [])), n_made)

{async_}def read_state(deps):
    return {{"orders": deps.orders, "n_made": deps.n_made}}
"""
PYDANTIC = """
def answer(word, messages):
    return said(f"done {word['result']}") if isinstance(word, dict) else called("order", {"what": word})

root_agent = Agent(scripted(answer), deps_type=Shop)

@root_agent.tool
def order(context: RunContext[Shop], what: str) -> int:
    context.deps.orders.append(what)
    return len(context.deps.orders)
"""
OPENAI = """
def answer(word, items):
    return said(f"done {word['result']}") if isinstance(word, dict) else called("order", {"what": word})

@function_tool(failure_error_function=None)
def order(context: RunContextWrapper[Shop], what: str) -> int:
    context.context.orders.append(what)
    return len(context.context.orders)

root_agent = Agent(name="shop", model=Scripted(answer), tools=[order])
"""
SOURCES = {
    "pydantic_ai": pydantic_ai_source.SCRIPT + OBJECT + PYDANTIC,
    "agents": openai_agents_source.SCRIPT + OBJECT + OPENAI,
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    skip_without(request.param)
    return SOURCES[request.param]


@pytest.mark.parametrize("async_", ["", "async "], ids=["function", "coroutine function"])
async def test_tools_get_the_object_and_the_state_is_read_back(
    source: str, async_: str, loaded: Any, play: Any
) -> None:
    agent = loaded(source + FUNCTIONS.format(async_=async_))
    session = Session("s", state={"orders": ["tea"]})

    await play(agent, session, "cake")
    await play(agent, session, "milk")

    assert [turn.answer for turn in session.turns] == ["done 2", "done 3"]
    assert session.state == {"orders": ["tea", "cake", "milk"], "n_made": 1}  # one object for the whole session


async def test_a_state_that_was_changed_makes_another_object(source: str, loaded: Any, play: Any) -> None:
    agent = loaded(source + FUNCTIONS.format(async_=""))
    session = Session("s")
    await play(agent, session, "cake")
    session.state = {"orders": []}
    await play(agent, session, "milk")
    fresh = Session("s", state=session.state, turns=session.turns)
    await play(agent, fresh, "bread")

    assert session.turns[1].answer == "done 1"
    assert fresh.state == {"orders": ["milk", "bread"], "n_made": 3}


async def test_a_state_change_is_recorded_after_its_tool_call(source: str, loaded: Any, played: Any) -> None:
    agent = loaded(source + FUNCTIONS.format(async_=""))
    record = await played(agent, Session("s", state={"orders": []}), "cake")
    kinds = [event.kind for event in record.events if event.kind in ("tool_call", "state_delta", "agent_message")]

    assert record.error is None
    assert kinds.index("tool_call") < kinds.index("state_delta")
    assert record.state_after["orders"] == ["cake"]


async def test_without_functions_the_error_suggests_make_deps(source: str, loaded: Any, play: Any) -> None:
    with pytest.raises(AgentError, match=r"'dict' object.*write make_deps\(state\) beside the agent"):
        await play(loaded(source), Session("s"), "cake")


async def test_a_state_that_is_no_object_is_refused(source: str, loaded: Any, play: Any) -> None:
    functions = "\ndef make_deps(state):\n    return Shop()\n\ndef read_state(deps):\n    return [1]\n"

    with pytest.raises(AgentError, match="read_state must give the session state as an object, not list"):
        await play(loaded(source + functions), Session("s"), "cake")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("make_deps = 3\n", "make_deps must be a function, not int"),
        ("def read_state(deps):\n    return {}\n", r"read_state needs make_deps\(state\)"),
    ],
)
def test_invalid_functions_are_refused_when_the_agent_is_loaded(source: str, more: str, said: str, loaded: Any) -> None:
    with pytest.raises(AgentError, match=said):
        loaded(source + "\n" + more)


async def test_functions_are_named_in_the_file(source: str, loaded: Any, play: Any) -> None:
    made = (
        (OBJECT + FUNCTIONS.format(async_=""))
        .replace("def make_deps", "def make")
        .replace("def read_state", "def read")
    )
    agent = loaded(source + made, make_deps="some_agent.agent:make", read_state="some_agent.agent:read")
    session = Session("s", state={"orders": []})

    await play(agent, session, "cake")

    assert session.state["orders"] == ["cake"]


def test_the_table_of_an_agent_names_its_functions(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agent.py").write_text("root_agent = 1\n")
    table = {"target": "shop", "make_deps": "shop.deps:make", "read_state": "shop.deps:read"}
    (found,) = declared_refs({"shop": table}, tmp_path)

    assert (found.make_deps, found.read_state) == ("shop.deps:make", "shop.deps:read")
    with pytest.raises(UsageError, match=r"make_deps is a function as module:function, not 'nothing'"):
        declared_refs({"shop": {"target": "shop", "make_deps": "nothing"}}, tmp_path)
    with pytest.raises(UsageError, match="make_deps is for an agent with a target"):
        declared_refs({"shop": {"model": "m", "make_deps": "a:b"}}, tmp_path)
