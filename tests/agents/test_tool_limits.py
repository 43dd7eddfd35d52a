"""A tool that is not finished in time, in every framework whose calls of tools are seen."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.installed import skip_without
from tests.agents.osmosis_example import SERVER
from tests.agents.roller import never_ending
from tests.islands import of_tools

from evaldesk.agents.tools.time_limit import TOOL_LIMIT, ToolLateError, call_in_time, in_thread_if_sync
from evaldesk.model import Limits, ModelOptions, Session

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what a framework warns of is not ours

FRAMEWORKS = {
    "google.adk": adk_source.ROLLER,
    "langgraph": langgraph_source.ROLLER,
    "agents": openai_agents_source.ROLLER,
    "pydantic_ai": pydantic_ai_source.ROLLER,
}
SHORT = Limits(tool_timeout_s=0.01)


@pytest.fixture(params=FRAMEWORKS)
def source(request: pytest.FixtureRequest) -> str:
    skip_without(request.param)
    return FRAMEWORKS[request.param]


async def test_a_tool_that_does_not_end_gives_the_model_an_error(source: str, loaded: Any, play: Any) -> None:
    session = Session("s", limits=SHORT)

    events = await play(loaded(never_ending(source)), session, "Roll a d6")

    [given] = [event for event in events if event.kind == "tool_result"]
    assert given.is_error
    assert "roll_die: not finished within 0.01 s" in str(given.result)
    assert "got " in session.turns[0].answer


async def test_a_limit_does_not_change_a_tool_in_time(source: str, loaded: Any, play: Any) -> None:
    agent = loaded(source)
    sessions = [Session("s", limits=Limits(tool_timeout_s=limit)) for limit in (3600, None)]

    told = [await play(agent, session, "Roll a d6") for session in sessions]

    assert [session.turns[0].answer for session in sessions] == ["got 6", "got 6"]
    assert [session.state for session in sessions] == [{"rolls": [6]}] * 2
    limited, unlimited = ([event.kind for event in events] for events in told)
    assert limited == unlimited


async def test_a_tool_of_an_agent_that_is_handed_over_to(loaded: Any, play: Any) -> None:
    skip_without("agents")
    source = never_ending(openai_agents_source.ROLLER).replace("root_agent = Agent(", "below = Agent(")
    source += """
from agents import handoff

def hands_over(word, items):
    return called("transfer_to_dice", {})

def rolls(word, items):
    return said("too late") if "not finished" in str(word) else called("roll_die", {"sides": 6})

below.model = Scripted(rolls)
root_agent = Agent(name="boss", model=Scripted(hands_over), handoffs=[handoff(below)])
"""
    session = Session("s", limits=SHORT)

    events = await play(loaded(source), session, "Roll a d6")

    assert [event.call.name for event in events if event.kind == "tool_call"] == ["transfer_to_dice", "roll_die"]
    [_, given] = [event for event in events if event.kind == "tool_result"]
    assert "roll_die: not finished within 0.01 s" in str(given.result)


@of_tools("osmosis")
async def test_a_tool_of_an_osmosis_loop_that_does_not_end(loaded: Any, play: Any, endpoint: Any) -> None:
    source = SERVER.replace("async def execute(tool_call", "import asyncio\n\nasync def execute(tool_call")
    source = source.replace(
        "    try:\n        call_id,", "    await asyncio.Event().wait()\n    try:\n        call_id,"
    )
    session = Session("s", model="small", model_options=ModelOptions(endpoint.address, n_retries=0), limits=SHORT)
    endpoint.says("", ("c1", "add", '{"a": 1, "b": 2}')).says("no answer")

    events = await play(loaded(source, "agent_loop"), session, "1 + 2?")

    [given] = [event for event in events if event.kind == "tool_result"]
    assert (given.result, given.is_error) == ("Error: add: not finished within 0.01 s", True)


async def test_a_tool_that_a_python_agent_calls_through_us(loaded: Any, play: Any) -> None:
    source = """
import asyncio
from evaldesk import call_tool

async def wait() -> None:
    await asyncio.Event().wait()

async def root_agent(message):
    return (await call_tool(wait, {})).result
"""
    session = Session("s", limits=SHORT)

    await play(loaded(source), session, "go")

    assert session.turns[0].answer == "wait: not finished within 0.01 s"


async def test_a_plain_function_is_abandoned_in_its_thread() -> None:
    held = threading.Event()
    TOOL_LIMIT.set(0.01)

    with pytest.raises(ToolLateError, match=r"wait: not finished within 0\.01 s"):
        await call_in_time("wait", in_thread_if_sync(lambda: held.wait(60)))

    held.set()


async def test_a_timeout_of_the_tool_itself_passes_through() -> None:
    async def fetch() -> None:
        raise TimeoutError("the shop does not answer")

    TOOL_LIMIT.set(3600)

    with pytest.raises(TimeoutError, match="the shop"):
        await call_in_time("fetch", fetch)
