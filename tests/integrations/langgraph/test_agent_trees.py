"""Graphs with subgraphs, as nodes and inside of tools, compared with the run tree of LangChain's own callbacks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.agents.langgraph_source import SCRIPT

from evaldesk.model import Session
from evaldesk.model.agent_tree import agent_tree

skip_without("langgraph")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the package warns of is not ours

PARTS = (
    SCRIPT
    + '''
@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing in {place}"

def searching(name):
    def model(state):
        is_done = state["messages"][-1].type == "tool"
        message = said("nothing there") if is_done else said("", ("look", {"place": "attic"}))
        message.name = name
        return {"messages": [message]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph.compile(name=name or "search")
'''
)
NODES = (
    PARTS
    + """
team = StateGraph(State)
team.add_node("scout", searching(None))
team.add_edge(START, "scout")
outer = StateGraph(State)
outer.add_node("team", team.compile())
outer.add_node("writer", lambda state: {"messages": [said("it is empty")]})
outer.add_edge(START, "team")
outer.add_edge("team", "writer")
root_agent = outer.compile(name="lead")
"""
)
INSIDE = (
    PARTS
    + '''
scout = searching("scout")

@tool
async def ask_scout(question: str) -> str:
    """Ask the scout."""
    found = await scout.ainvoke({"messages": [("user", question)]})
    return found["messages"][-1].content

def lead(state):
    is_done = state["messages"][-1].type == "tool"
    return {"messages": [said("it is empty") if is_done else said("", ("ask_scout", {"question": "look"}))]}

outer = StateGraph(State)
outer.add_node("lead", lead)
outer.add_node("tools", ToolNode([ask_scout]))
outer.add_edge(START, "lead")
outer.add_conditional_edges("lead", lambda state: "tools" if state["messages"][-1].tool_calls else END)
outer.add_edge("tools", "lead")
root_agent = outer.compile(name="lead")
'''
)


def told(events: Any) -> list[tuple[str, str, str, str]]:
    return [(each.kind, each.author, each.parent, each.within) for each in events if each.kind != "usage"]


async def test_a_subgraph_as_a_node_is_an_agent_below_the_graph_around_it(loaded: Any, play: Any) -> None:
    session = Session("s")

    events = await play(loaded(NODES), session, "go")

    assert told(events) == [
        ("tool_call", "scout", "team", ""),
        ("tool_result", "scout", "team", ""),
        ("agent_message", "scout", "team", ""),
        ("agent_message", "writer", "", ""),
    ]
    turn = session.turns[0]
    assert ([call.name for call in turn.tool_calls], turn.answer) == (["look"], "it is empty")
    assert len(turn.usages) == 3


async def test_a_graph_that_a_tool_plays_is_inside_of_it_as_in_langchains_run_tree(loaded: Any, play: Any) -> None:
    agent = loaded(INSIDE)
    session = Session("s")

    events = await play(agent, session, "go")

    assert told(events) == [
        ("tool_call", "lead", "", ""),
        ("tool_call", "scout", "", "ask_scout"),
        ("tool_result", "tools", "", "ask_scout"),
        ("agent_message", "scout", "", "ask_scout"),
        ("tool_result", "tools", "", ""),
        ("agent_message", "lead", "", ""),
    ]
    turn = session.turns[0]
    assert ([call.name for call in turn.tool_calls], turn.answer) == (["ask_scout"], "it is empty")
    tree = [(each.name, each.parent, each.n_entries, each.n_calls, each.n_model_calls) for each in agent_tree([turn])]
    assert tree == [("lead", "", 1, 1, 2), ("scout", "lead", 1, 1, 2)]
    assert await tools_of_langchain(agent.graph) == [("ask_scout", "lead"), ("look", "scout")]


async def tools_of_langchain(graph: Any) -> list[tuple[str, str]]:
    """Each tool with the nearest graph above it, as LangChain's own callbacks have them."""
    from langchain_core.callbacks import AsyncCallbackHandler

    runs: dict[Any, tuple[str, Any]] = {}
    tools: list[tuple[str, Any]] = []

    class Collector(AsyncCallbackHandler):  # type: ignore[misc] # the package may be missing
        async def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, **more: Any) -> None:
            runs[run_id] = (str(more.get("name")), more.get("parent_run_id"))

        async def on_tool_start(self, serialized: Any, text: Any, *, run_id: Any, **more: Any) -> None:
            runs[run_id] = (serialized["name"], more.get("parent_run_id"))
            tools.append((serialized["name"], more.get("parent_run_id")))

    await graph.ainvoke({"messages": [("user", "go")]}, {"callbacks": [Collector()]})

    def graph_above(run_id: Any) -> str:
        while run_id in runs and runs[run_id][0] not in ("lead", "scout"):
            run_id = runs[run_id][1]
        return runs[run_id][0] if run_id in runs else ""

    return [(name, graph_above(parent)) for name, parent in tools]
