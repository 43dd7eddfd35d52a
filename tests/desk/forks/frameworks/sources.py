"""Agents of four frameworks that roll dice by the model of an endpoint, and show it their state in the instruction."""

from __future__ import annotations

ADK = '''
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm

def roll_die(sides: int, tool_context) -> int:
    """Roll a die."""
    tool_context.state["rolls"] = [*tool_context.state.get("rolls", []), sides]
    return sides

root_agent = LlmAgent(
    name="dice",
    model=LiteLlm(model="hosted_vllm/small", api_base="{address}", api_key="k"),
    tools=[roll_die],
    instruction="Rolled so far: {rolls?}.",
)
'''
LANGGRAPH = '''
import json
from typing import Annotated

from langchain_core.messages import AIMessage, AnyMessage, convert_to_openai_messages
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from openai import AsyncOpenAI
from typing_extensions import TypedDict

client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=0)

class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    rolls: list[int]

@tool
def roll_die(sides: int) -> int:
    """Roll a die."""
    return sides

async def answer(state):
    last = state["messages"][-1]
    rolls = [*state.get("rolls", []), *([int(last.content)] if last.type == "tool" else [])]
    shown = [{"role": "system", "content": f"Rolled so far: {rolls}."}]
    reply = await client.chat.completions.create(
        model="small", messages=shown + convert_to_openai_messages(state["messages"])
    )
    message = reply.choices[0].message
    calls = [
        {"name": call.function.name, "args": json.loads(call.function.arguments), "id": call.id, "type": "tool_call"}
        for call in message.tool_calls or ()
    ]
    spent = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}
    return {"messages": [AIMessage(message.content or "", tool_calls=calls, usage_metadata=spent)], "rolls": rolls}

graph = StateGraph(State)
graph.add_node("answer", answer)
graph.add_node("tools", ToolNode([roll_die]))
graph.add_edge(START, "answer")
graph.add_conditional_edges("answer", lambda state: "tools" if state["messages"][-1].tool_calls else END)
graph.add_edge("tools", "answer")
root_agent = graph.compile(name="dice")
'''
OPENAI_AGENTS = '''
from agents import Agent, OpenAIChatCompletionsModel, RunContextWrapper, function_tool
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=0)

@function_tool
def roll_die(context: RunContextWrapper[dict], sides: int) -> int:
    """Roll a die."""
    context.context["rolls"] = [*context.context.get("rolls", []), sides]
    return sides

def instructions(context, agent):
    return f"Rolled so far: {context.context.get('rolls', [])}."

root_agent = Agent(
    name="dice", model=OpenAIChatCompletionsModel("small", client), tools=[roll_die], instructions=instructions
)
'''
PYDANTIC_AI = '''
from openai import AsyncOpenAI
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=0)
model = OpenAIChatModel("small", provider=OpenAIProvider(openai_client=client))
root_agent = Agent(model, name="dice", deps_type=dict)

@root_agent.instructions
def instructions(context: RunContext[dict]) -> str:
    return f"Rolled so far: {context.deps.get('rolls', [])}."

@root_agent.tool
def roll_die(context: RunContext[dict], sides: int) -> int:
    """Roll a die."""
    context.deps["rolls"] = [*context.deps.get("rolls", []), sides]
    return sides
'''
FRAMEWORKS = {
    "adk": ("google.adk", ADK),
    "langgraph": ("langgraph", LANGGRAPH),
    "openai_agents": ("agents", OPENAI_AGENTS),
    "pydantic_ai": ("pydantic_ai", PYDANTIC_AI),
}
"""The package and the source of each, by its kind."""
