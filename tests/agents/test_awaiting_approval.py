"""Agents that wait for a person, with the real packages and scripted models."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents import langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.installed import skip_without

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

SHAPES = [
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
