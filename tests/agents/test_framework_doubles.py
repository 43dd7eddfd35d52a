"""Tools that answer what the case says, in frameworks that call their tools themselves."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.agents import langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.installed import skip_without

from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, Limits, TrialResult, TrialSpec, Turn

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what a framework warns of is not ours

OFFERED = """

def lucky(sides: int, state: dict) -> int:
    state["lucky"] = sides
    return 1

tool_doubles = {"lucky": lucky}
"""
SOURCES = {
    "langgraph": langgraph_source.ROLLER,
    "agents": openai_agents_source.ROLLER,
    "pydantic_ai": pydantic_ai_source.ROLLER,
}


@pytest.fixture(params=SOURCES)
def agent(request: pytest.FixtureRequest, loaded: Any) -> Any:
    skip_without(request.param)
    return loaded(SOURCES[request.param] + OFFERED)


async def played(agent: Any, doubles: Any, *queries: str) -> TrialResult:
    case = Case("c", tuple(map(Turn, queries)), extra={"tool_doubles": doubles})
    ref = AgentRef("some_agent", "some_agent.agent:root_agent")
    return await play_trial(agent, TrialSpec(1, 0, 0, case, ref, limits=Limits(30)))


async def test_answers_of_the_case_replace_the_tool_and_are_labelled(agent: Any) -> None:
    answers = [{"args": {"sides": 6}, "result": 4}, {"args": {"sides": 8}, "error": "the die is gone"}]

    result = await played(agent, {"tools": {"roll_die": answers}}, "Roll a d6", "Roll a d8")

    assert result.status == "finished", result.error
    first, second = result.transcript.turns
    assert first.answer == "got 4"
    [failed] = [event for event in second.events if event.kind == "tool_result"]
    assert failed.is_error
    assert "the die is gone" in str(failed.result)
    assert [event.text for turn in (first, second) for event in turn.events if event.author == "double"] == [
        "roll_die was answered by a double of the case (answer 1)",
        "roll_die was answered by a double of the case (answer 2)",
    ]


async def test_a_call_without_an_answer_ends_the_trial(agent: Any) -> None:
    doubles = {"tools": {"roll_die": [{"args": {"sides": 6}, "result": 4}]}}

    result = await played(agent, doubles, "Roll a d8")

    assert (result.status, result.error and result.error.kind) == ("errored", "no_double")


async def test_a_function_of_the_agents_module_answers(agent: Any) -> None:
    result = await played(agent, {"tools": {"roll_die": [{"function": "lucky"}]}}, "Roll a d20")

    assert result.transcript.turns[0].answer == "got 1"
    is_graph = agent.describe().kind == "langgraph"  # whose state only its nodes can change
    assert (result.transcript.final_state.get("lucky") == 20) is not is_graph


SERVER = """
from agents.mcp import MCPServer
from mcp import types

class Dice(MCPServer):
    name = "dice"
    n_called = 0
    async def connect(self): ...
    async def cleanup(self): ...
    async def list_prompts(self): ...
    async def get_prompt(self, name, arguments=None): ...
    async def list_tools(self, run_context=None, agent=None):
        return [types.Tool.model_validate({"name": "roll_die", "inputSchema": {"type": "object"}})]
    async def call_tool(self, tool_name, arguments, meta=None):
        self.n_called += 1
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{arguments['sides']}")])

dice = Dice()
root_agent = Agent(name="dice", model=Scripted(answer), mcp_servers=[dice])
"""
INSIDE = """
async def ask(word, items):
    return said(f"heard {word['result']}") if isinstance(word, dict) else called("ask_dice", {"input": word})

tool = root_agent.as_tool("ask_dice", "Asks.")
root_agent = Agent(name="boss", model=Scripted(ask), tools=[tool])
"""


@pytest.mark.parametrize("more", [SERVER, INSIDE, SERVER + INSIDE])
@pytest.mark.parametrize("is_doubled", [True, False])
async def test_tools_of_servers_and_of_agents_that_are_tools_have_doubles(
    loaded: Any, more: str, is_doubled: bool
) -> None:
    skip_without("agents")
    skip_without("mcp")
    agent = loaded(openai_agents_source.ROLLER + more)
    doubles = {"tools": {"roll_die": [{"result": 4}]}} if is_doubled else {}

    result = await played(agent, doubles, "Roll a d6")

    assert result.status == "finished", result.error
    assert ("4" in str(result.transcript.turns[0].answer)) is is_doubled
    server = getattr(sys.modules["some_agent.agent"], "dice", None)
    assert server is None or server.n_called == (not is_doubled)
