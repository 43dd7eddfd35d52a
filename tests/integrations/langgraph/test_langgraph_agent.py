"""Compiled graphs of LangGraph, with the real package and scripted nodes."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from tests.agents.installed import skip_without
from tests.agents.langgraph_source import ROLLER, SCRIPT

from evaldesk.errors import AgentError
from evaldesk.model import ModelOptions, Session

skip_without("langgraph")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the package warns of is not ours

CHECKPOINTED = (
    ROLLER
    + """
from langgraph.checkpoint.memory import InMemorySaver
root_agent = graph.compile(checkpointer=InMemorySaver())
"""
)


async def test_a_turn_with_a_tool(loaded: Any, play: Any) -> None:
    session = Session("s", state={"rolls": [1], "mine": "kept"})

    events = await play(loaded(ROLLER), session, "Roll a d6")

    assert [event.kind for event in events if event.kind != "usage"] == ["tool_call", "tool_result", "agent_message"]
    assert (session.turns[0].answer, session.state) == ("got 6", {"rolls": [1, 6], "mine": "kept"})
    assert [(usage.model, usage.tokens_in, usage.cost) for usage in session.turns[0].usages] == [
        ("scripted", 11, None)
    ] * 2


async def test_the_input_schema_of_a_graph_is_read_once(
    loaded: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = loaded(ROLLER)
    asked = Mock(side_effect=agent.graph.get_input_jsonschema)
    monkeypatch.setattr(type(agent.graph), "get_input_jsonschema", asked)

    for number in range(3):
        await play(agent, Session(f"s{number}", state={"rolls": [1]}), "Roll a d6")

    assert asked.call_count == 1


@pytest.mark.parametrize("source", [ROLLER, CHECKPOINTED], ids=["plain", "checkpointer"])
@pytest.mark.parametrize("is_fresh", [False, True], ids=["same worker", "fresh worker"])
async def test_the_second_turn_remembers_the_first(loaded: Any, play: Any, source: str, is_fresh: bool) -> None:
    agent = loaded(source)
    session = Session("s")
    await play(agent, session, "Roll a d6")

    if is_fresh:
        session = Session("s", state=session.state, turns=session.turns)
    events = await play(agent, session, "what was it")

    assert session.turns[1].answer == "seen: human, ai, tool, ai, human"
    assert len([event for event in events if event.kind == "agent_message"]) == 1


async def test_text_is_streamed_in_a_chat(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
from langchain_core.language_models import GenericFakeChatModel
model = GenericFakeChatModel(messages=iter([AIMessage("hello there")]))

async def agent(state):
    return {"messages": [await model.ainvoke(state["messages"])]}

graph = StateGraph(State)
graph.add_node("agent", agent)
graph.add_edge(START, "agent")
root_agent = graph.compile()
"""
    )
    session = Session("s", is_streaming=True)

    events = await play(loaded(source), session, "hi")

    assert "".join(event.text for event in events if event.is_partial) == "hello there"
    assert session.turns[0].answer == "hello there"


async def test_max_turns_is_a_stop_of_its_own(loaded: Any, play: Any) -> None:
    agent = loaded(
        ROLLER.replace('if last.type == "tool":', "if False:")
        .replace('word.startswith("Roll a d")', "True")
        .replace('int(word.removeprefix("Roll a d"))', "1")
    )

    events = await play(agent, Session("s", model_options=ModelOptions(max_turns=2)), "go")

    assert events[-1].error.kind == "max_turns"
    assert len([event for event in events if event.kind == "tool_call"]) == 2


async def test_a_built_in_model_cannot_be_replaced(loaded: Any, play: Any) -> None:
    with pytest.raises(AgentError, match="its model built in"):
        await play(loaded(ROLLER), Session("s", model="openai/gpt-4o"), "hi")


async def test_a_model_in_the_context_schema_can_be_replaced(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
class Context(TypedDict, total=False):
    model: str

async def agent(state, config):
    return {"messages": [said(config["configurable"]["model"])]}

graph = StateGraph(State, context_schema=Context)
graph.add_node("agent", agent)
graph.add_edge(START, "agent")
root_agent = graph.compile()
"""
    )
    session = Session("s", model="openai/gpt-4o")

    await play(loaded(source), session, "hi")

    assert session.turns[0].answer == "openai/gpt-4o"


async def test_a_state_without_messages_is_an_error(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
class Bare(TypedDict):
    text: str

graph = StateGraph(Bare)
graph.add_node("agent", lambda state: {"text": "hi"})
graph.add_edge(START, "agent")
root_agent = graph.compile()
"""
    )
    with pytest.raises(AgentError, match="has no `messages`"):
        await play(loaded(source), Session("s"), "hi")


def test_an_uncompiled_graph_is_an_error(loaded: Any) -> None:
    with pytest.raises(AgentError, match=r"give graph\.compile\(\)"):
        loaded(ROLLER.replace('graph.compile(name="dice")', "graph"))


def test_the_description(loaded: Any) -> None:
    described = loaded(ROLLER).describe()

    assert (described.name, described.kind) == ("dice", "langgraph")
    assert described.description == "A graph with the nodes agent, tools."
    [tool] = described.tools
    assert (tool.name, tool.parameters["required"]) == ("roll_die", ["sides"])
