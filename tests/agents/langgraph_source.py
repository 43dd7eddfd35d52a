"""The source of a LangGraph agent whose model is a scripted node."""

from tests.agents.roller import DECIDED

SCRIPT = """
import asyncio
from typing import Annotated, Any
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    rolls: list[int]

def said(text, *calls):
    found = [
        {"name": name, "args": args, "id": f"c{index}", "type": "tool_call"}
        for index, (name, args) in enumerate(calls)
    ]
    spent = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}
    return AIMessage(content=text, tool_calls=found, usage_metadata=spent, response_metadata={"model_name": "scripted"})
"""

ROLLER = (
    SCRIPT
    + DECIDED
    + '''
@tool
def roll_die(sides: int) -> int:
    """Roll a die."""
    return sides

async def agent(state):
    last = state["messages"][-1]
    if last.type == "tool":
        rolls = [int(last.content)] if last.content.isdigit() else []
        return {"messages": [said(f"got {last.content}")], "rolls": [*state.get("rolls", []), *rolls]}
    word = last.content
    if word == "what was it":
        return {"messages": [said("seen: " + ", ".join(message.type for message in state["messages"]))]}
    found = await decided(word)
    return {"messages": [said("", ("roll_die", {"sides": found})) if isinstance(found, int) else said(found)]}

def after(state):
    return "tools" if state["messages"][-1].tool_calls else END

graph = StateGraph(State)
graph.add_node("agent", agent)
graph.add_node("tools", ToolNode([roll_die]))
graph.add_edge(START, "agent")
graph.add_conditional_edges("agent", after)
graph.add_edge("tools", "agent")
root_agent = graph.compile(name="dice")
'''
)
