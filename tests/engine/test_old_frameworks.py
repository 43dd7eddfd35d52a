"""Agents deployed with frameworks of long ago, played by these very packages on an interpreter of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.agents.endpoint import served
from tests.real_environments import python_with

from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.launch import ProcessLauncher
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

ADK = '''
import os
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.version import __version__

def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

root_agent = Agent(
    name="dice",
    description=__version__,
    model=LiteLlm(model="hosted_vllm/small", api_base="{address}", api_key="k"),
    tools=[roll_die],
)
'''
OPENAI = '''
from importlib.metadata import version

from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)

@function_tool
def roll_die(sides: int) -> int:
    """Rolls a die."""
    return sides

client = AsyncOpenAI(base_url="{address}", api_key="k")
root_agent = Agent(name="dice", model=OpenAIChatCompletionsModel("small", client), tools=[roll_die])
'''
CLIENT = '''
import json
import litellm
from importlib.metadata import version

def root_agent(message):
    """Asks by LiteLLM of long ago."""
    found = litellm.completion(
        model="openai/small", api_base="{address}", api_key="k", messages=[{"role": "user", "content": message}]
    )
    if found.choices[0].message.tool_calls:
        found = litellm.completion(
            model="openai/small", api_base="{address}", api_key="k", messages=[{"role": "user", "content": "6"}]
        )
    return found.choices[0].message.content
'''
OLD = {
    "google-adk 1.14": (("google-adk==1.14.0", "litellm==1.75.0", "starlette<1"), ADK, True),
    "openai-agents 0.2 on openai 1": (("openai-agents==0.2.11", "openai<2"), OPENAI, True),
    "litellm 1.60 on openai 1": (("litellm==1.60.0", "openai<2"), CLIENT, False),
}


@pytest.mark.parametrize("name", OLD)
async def test_an_agent_is_played_by_the_packages_that_it_is_deployed_with(
    name: str, tmp_path: Path, trial: Callable[..., TrialSpec], play: Callable[..., Awaitable[dict[int, TrialResult]]]
) -> None:
    packages, source, tells_tools = OLD[name]
    python = python_with(*packages)
    with served() as endpoint:
        endpoint.says("", ("c1", "roll_die", '{"sides": 6}')).says("got 6")
        (tmp_path / "agent.py").write_text(source.replace("{address}", endpoint.address))
        ref = AgentRef("old", "agent:root_agent", str(tmp_path), str(tmp_path), python=python)
        executor, host = LocalExecutor(1, 1, launcher=ProcessLauncher(python)), ChatPlayers()
        try:
            result = (await play(executor, [trial(ref, queries=("Roll a d6",), timeout_s=120)]))[0]
            described = await host.describe(ref)
        finally:
            await executor.close()
            await host.close()

    assert result.error is None
    [turn] = result.transcript.turns
    assert turn.answer == "got 6"
    assert [call.name for call in turn.tool_calls] == (["roll_die"] if tells_tools else [])
    assert [(usage.tokens_in, usage.tokens_out) for usage in turn.usages] == [(11, 5), (11, 5)]
    assert len(endpoint.asked) == 2
    versions = dict(each.split("==") for each in packages if "==" in each)
    assert {**versions, **described.interpreter.packages} == {**described.interpreter.packages, **versions}
