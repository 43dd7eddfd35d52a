"""Agents that wait for a person, with the real packages and scripted models."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.answering import answering
from tests.agents.installed import skip_without

from evaldesk.agents import agent_ref, load_agent
from evaldesk.metrics.tools.match import ToolExact, ToolRecall
from evaldesk.metrics.tools.trajectory import ToolTrajectoryAvgScore
from evaldesk.metrics.tools.used import ToolUsed
from evaldesk.model import Case, Expected, Session, ToolCall, Transcript, Turn

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

OPENAI = openai_agents_source.ROLLER.replace("@function_tool\n", "@function_tool(needs_approval=True)\n")
PYDANTIC = pydantic_ai_source.ROLLER.replace(
    "@root_agent.tool\n", "@root_agent.tool(requires_approval=True)\n"
).replace("deps_type=dict)", "deps_type=dict, output_type=[str, DeferredToolRequests])")
PYDANTIC = "from pydantic_ai import DeferredToolRequests\n" + PYDANTIC
GRAPH = langgraph_source.ROLLER.replace("    return sides\n", "    interrupt('Roll?')\n    return sides\n").replace(
    'graph.compile(name="dice")', 'graph.compile(name="dice", checkpointer=InMemorySaver())'
)
GRAPH = "from langgraph.checkpoint.memory import InMemorySaver\nfrom langgraph.types import interrupt\n" + GRAPH

ADK = "from google.adk.tools.function_tool import FunctionTool\n" + adk_source.ROLLER.replace(
    "tools=[roll_die]", "tools=[FunctionTool(roll_die, require_confirmation=True)]"
)
LONG = "from google.adk.tools.long_running_tool import LongRunningFunctionTool\n" + adk_source.ROLLER.replace(
    "tools=[roll_die]", "tools=[LongRunningFunctionTool(roll_die)]"
).replace("    return sides\n", "    return None\n")

SHAPES = [
    pytest.param("google.adk", ADK, id="ADK confirmation"),
    pytest.param("google.adk", LONG, id="ADK long-running tool"),
    pytest.param("agents", OPENAI, id="OpenAI needs_approval"),
    pytest.param("pydantic_ai", PYDANTIC, id="pydantic-ai deferred tool"),
    pytest.param("langgraph", GRAPH, id="LangGraph interrupt"),
]


@pytest.mark.parametrize(("package", "source"), SHAPES)
@pytest.mark.parametrize("is_streaming", [False, True], ids=["whole", "streaming"])
async def test_a_call_that_waits_for_a_person_satisfies_no_trajectory(
    loaded: Any, played: Any, package: str, source: str, is_streaming: bool
) -> None:
    skip_without(package)

    turn = await played(loaded(source), Session("s", is_streaming=is_streaming), "Roll a d6")

    assert (turn.stop_reason, turn.error, turn.answer) == ("awaiting_approval", None, "")
    assert [call.name for call in turn.tool_calls] == ["roll_die"]
    assert not [event for event in turn.events if event.kind == "tool_result"]
    wanted = Expected(tool_calls=tuple(ToolCall(call.name, call.args) for call in turn.tool_calls))
    for metric in (ToolExact(), ToolRecall(), ToolTrajectoryAvgScore(), ToolUsed(tool="roll_die")):
        scores = metric.score(Transcript((turn,)), Case("c", (Turn("Roll a d6", wanted),)))
        assert scores[-1].value == 0.0, metric
    never = ToolUsed(tool="roll_die", at_least=0, at_most=0)
    assert never.score(Transcript((turn,)), Case("c", (Turn("Roll a d6"),)))[-1].value == 0.0


async def test_a_long_running_tool_that_told_a_first_result_still_waits(loaded: Any, played: Any) -> None:
    skip_without("google.adk")
    source = LONG.replace("    return None\n", '    return {"status": "pending"}\n')

    turn = await played(loaded(source), Session("s"), "Roll a d6")

    assert (turn.stop_reason, turn.error, turn.answer) == ("awaiting_approval", None, "")
    [result] = [event for event in turn.events if event.kind == "tool_result"]
    assert result.result == {"status": "pending"}


async def test_a_request_to_the_person_is_no_call_of_the_agent(loaded: Any, played: Any) -> None:
    skip_without("google.adk")

    turn = await played(loaded(ADK), Session("s"), "Roll a d6")

    logs = [event.text for event in turn.events if event.kind == "log"]
    assert "adk_request_confirmation: roll_die" in logs
    assert "roll_die waits for a confirmation" in logs
    [waiting] = turn.waiting
    assert (waiting.tool, waiting.args, waiting.choices) == ("roll_die", {"sides": 6}, ("approve", "deny"))


SERVED = [
    {
        "author": "shop",
        "content": {"parts": [{"functionCall": {"id": "c1", "name": "refund", "args": {"order": 7}}}]},
    },
    {
        "author": "shop",
        "content": {
            "parts": [
                {
                    "functionCall": {
                        "id": "adk-2",
                        "name": "adk_request_confirmation",
                        "args": {"originalFunctionCall": {"id": "c1", "name": "refund", "args": {"order": 7}}},
                    }
                }
            ]
        },
        "longRunningToolIds": ["adk-2"],
    },
    {
        "author": "shop",
        "content": {"parts": [{"functionResponse": {"id": "c1", "name": "refund", "response": {"error": "confirm"}}}]},
        "actions": {"requestedToolConfirmations": {"c1": {"hint": "sure?"}}},
    },
]


async def test_an_agent_behind_a_server_of_adk_waits(played: Any) -> None:
    with answering() as (address, server):
        server.gives({"id": "s-77", "appName": "shop"})
        server.gives(*SERVED, kind="text/event-stream")

        turn = await played(load_agent(agent_ref(f"adk:{address}/shop")), Session("s"), "refund 7")

    assert (turn.stop_reason, turn.error, turn.answer) == ("awaiting_approval", None, "")
    assert [call.name for call in turn.tool_calls] == ["refund"]
    assert not [event for event in turn.events if event.kind == "tool_result"]
