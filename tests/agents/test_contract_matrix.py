"""The table of docs/agents.md on what is played of each framework: every cell is played here with the real package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without
from tests.agents.test_awaiting_approval import ADK, GRAPH, OPENAI, PYDANTIC
from tests.agents.test_resumed_approvals import decided
from tests.agents.test_uncounted import NESTED

from evaldesk.model import Decision, Session

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

DOC = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
PACKAGES = {
    "google-adk": "google.adk",
    "OpenAI Agents": "agents",
    "LangGraph": "langgraph",
    "pydantic-ai": "pydantic_ai",
}
ROLLERS = {
    "google-adk": adk_source.ROLLER,
    "OpenAI Agents": openai_agents_source.ROLLER,
    "LangGraph": langgraph_source.ROLLER,
    "pydantic-ai": pydantic_ai_source.ROLLER,
}
WAITING = {"google-adk": ADK, "OpenAI Agents": OPENAI, "LangGraph": GRAPH, "pydantic-ai": PYDANTIC}
INSIDE = {
    "google-adk": "ADK AgentTool",
    "OpenAI Agents": "OpenAI as_tool",
    "LangGraph": "a graph inside a tool",
    "pydantic-ai": "pydantic-ai delegation",
}


async def _tool(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    turn = await played(loaded(ROLLERS[framework]), Session("s"), "Roll a d6")
    assert (turn.answer, [(call.name, call.args) for call in turn.tool_calls]) == (
        "got 6",
        [("roll_die", {"sides": 6})],
    )
    return "call, result and answer"


async def _state(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    session = Session("s", state={"rolls": [1]})
    turn = await played(loaded(ROLLERS[framework]), session, "Roll a d6")
    assert (turn.error, session.state["rolls"]) == (None, [1, 6])
    return "before and after"


async def _stream(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    turn = await played(loaded(ROLLERS[framework]), Session("s", is_streaming=True), "Roll a d6")
    assert ((turn.answer or "").strip(), [call.name for call in turn.tool_calls]) == ("got 6", ["roll_die"])
    return "the same events"


async def _waits(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    turn = await played(loaded(WAITING[framework]), Session("s"), "Roll a d6")
    assert (turn.stop_reason, turn.error) == ("awaiting_approval", None)
    return "`awaiting_approval`"


async def _resumed(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    turn = await decided(loaded, WAITING[framework], Decision("approve"))
    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "got 6")
    assert [event.kind for event in turn.events].count("tool_result") == 1
    return "result and answer"


async def _inside(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    _, source, argument = NESTED[INSIDE[framework]]
    endpoint.says("", ("c1", "ask", json.dumps({argument: "what?"}))).says("42").says("it is 42")
    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")
    assert (turn.answer, len(turn.usages), len(endpoint.asked)) == ("it is 42", 3, 3)
    return "its calls are counted"


SHAPES = {
    "a tool": (_tool, "call, result and answer"),
    "state that a tool changes": (_state, "before and after"),
    "a streamed answer": (_stream, "the same events"),
    "a tool that needs an approval": (_waits, "`awaiting_approval`"),
    "a resumed approval": (_resumed, "result and answer"),
    "an agent inside a tool": (_inside, "its calls are counted"),
}


@pytest.mark.parametrize("framework", PACKAGES)
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_cell_of_the_table_is_played(
    shape: str, framework: str, loaded: Any, played: Any, endpoint: Endpoint
) -> None:
    skip_without(PACKAGES[framework])
    play, words = SHAPES[shape]

    assert await play(framework, loaded, played, endpoint) == words


def test_the_table_of_the_document_has_these_cells() -> None:
    _, _, section = DOC.read_text("utf-8").partition("## Shapes of agents\n")
    found = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]

    rows = [f"| {shape} | {' | '.join([words] * len(PACKAGES))} |" for shape, (_, words) in SHAPES.items()]

    assert found == [f"| | {' | '.join(PACKAGES)} |", *rows]
