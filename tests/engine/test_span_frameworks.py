"""Agents of frameworks without an adapter, inside of a function, seen by their spans: with the real packages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.agents.endpoint import served
from tests.real_environments import python_with

from evaldesk.engine import LocalExecutor
from evaldesk.engine.launch import ProcessLauncher
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

SMOLAGENTS = '''
from smolagents import OpenAIModel, ToolCallingAgent, tool

@tool
def roll_die(sides: int) -> int:
    """Rolls a die.

    Args:
        sides: How many.
    """
    return sides

def root_agent(message):
    model = OpenAIModel("small", api_base="{address}", api_key="k")
    return str(ToolCallingAgent(tools=[roll_die], model=model, verbosity_level=0).run(message))
'''
CREWAI = '''
from crewai import LLM, Agent
from crewai.tools import tool

@tool("roll_die")
def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

def root_agent(message):
    llm = LLM(model="openai/gpt-4o", base_url="{address}", api_key="k")
    agent = Agent(role="dice", goal="Roll.", backstory="Rolls.", llm=llm, tools=[roll_die], verbose=False)
    return agent.kickoff(message).raw
'''
AUTOGEN = '''
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = dict.fromkeys(("vision", "json_output", "structured_output"), False) | {"function_calling": True, "family": "x"}

def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

async def root_agent(message):
    client = OpenAIChatCompletionClient(model="small", base_url="{address}", api_key="k", model_info=INFO)
    agent = AssistantAgent("dice", client, tools=[roll_die], reflect_on_tool_use=True)
    return (await agent.run(task=message)).messages[-1].content
'''
LLAMA = '''
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

async def root_agent(message):
    llm = OpenAILike("small", api_base="{address}", api_key="k", is_chat_model=True, is_function_calling_model=True)
    return str(await FunctionAgent(tools=[roll_die], llm=llm, streaming=False).run(message))
'''
MICROSOFT = '''
import os
os.environ["ENABLE_INSTRUMENTATION"] = "true"
os.environ["ENABLE_SENSITIVE_DATA"] = "true"
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

@tool(approval_mode="never_require")
def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

async def root_agent(message):
    client = OpenAIChatCompletionClient(model="small", base_url="{address}", api_key="k")
    agent = Agent(client=client, name="dice", tools=[roll_die])
    return str(await agent.run(message))
'''
DSPY = '''
import dspy

def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

def root_agent(message):
    lm = dspy.LM("openai/small", api_base="{address}", api_key="k", cache=False)
    with dspy.context(lm=lm):
        return dspy.ReAct("question -> answer", tools=[roll_die], max_iters=2)(question=message).answer
'''
OTEL = "opentelemetry-sdk"
FRAMEWORKS = {
    "smolagents": (("smolagents[openai]", "openinference-instrumentation-smolagents", OTEL), SMOLAGENTS),
    "CrewAI": (("crewai", "openinference-instrumentation-crewai", OTEL), CREWAI),
    "AutoGen": (("autogen-agentchat", "autogen-ext[openai]", OTEL), AUTOGEN),
    "LlamaIndex": (
        ("llama-index-core", "llama-index-llms-openai-like", "openinference-instrumentation-llama-index", OTEL),
        LLAMA,
    ),
    "Agent Framework": (("agent-framework-core", "agent-framework-openai", OTEL), MICROSOFT),
    "DSPy": (("dspy", "openinference-instrumentation-dspy", OTEL), DSPY),
}
DSPY_SAYS = (
    "[[ ## next_thought ## ]]\nRoll.\n\n[[ ## next_tool_name ## ]]\nroll_die\n\n"
    '[[ ## next_tool_args ## ]]\n{"sides": 6}\n\n[[ ## completed ## ]]',
    "[[ ## next_thought ## ]]\nDone.\n\n[[ ## next_tool_name ## ]]\nfinish\n\n"
    "[[ ## next_tool_args ## ]]\n{}\n\n[[ ## completed ## ]]",
    "[[ ## reasoning ## ]]\nRolled.\n\n[[ ## answer ## ]]\ngot 6\n\n[[ ## completed ## ]]",
)


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_its_calls_results_and_tokens_are_seen(
    name: str, tmp_path: Path, trial: Callable[..., TrialSpec], play: Callable[..., Awaitable[dict[int, TrialResult]]]
) -> None:
    packages, source = FRAMEWORKS[name]
    python = python_with(*packages)
    with served() as endpoint:
        if name == "DSPy":
            for text in DSPY_SAYS:
                endpoint.says(text)
        elif name == "smolagents":
            endpoint.says("", ("c1", "roll_die", '{"sides": 6}'))
            endpoint.says("", ("c2", "final_answer", '{"answer": "got 6"}'))
        else:
            endpoint.says("", ("c1", "roll_die", '{"sides": 6}')).says("got 6")
        (tmp_path / "agent.py").write_text(source.replace("{address}", endpoint.address))
        ref = AgentRef("span", "agent:root_agent", str(tmp_path), str(tmp_path), python=python)
        executor = LocalExecutor(1, 1, launcher=ProcessLauncher(python))
        try:
            result = (await play(executor, [trial(ref, queries=("Roll a d6",), timeout_s=240)]))[0]
        finally:
            await executor.close()
        n_asked = len(endpoint.asked)

    assert result.error is None, result.error
    [turn] = result.transcript.turns
    told = [(call.name, call.args) for call in turn.tool_calls]
    results = [(event.call.name, event.result) for event in turn.events if event.kind == "tool_result" and event.call]
    assert turn.answer == "got 6"
    assert told[:1] == [("roll_die", {"sides": 6})]
    assert ("roll_die", "6") in [(called, str(found)) for called, found in results]
    tokens = [(usage.tokens_in, usage.tokens_out, usage.is_least) for usage in turn.usages]
    assert tokens == [(11, 5, False)] * n_asked
    assert "spans" in turn.captures
