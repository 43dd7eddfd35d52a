"""A server of tools that does not start makes the turn an error, in every framework; google-adk has its own test."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without

from evaldesk.model import Session, TurnRecord

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what frameworks warn of is not ours to mend

COMMAND = 'sys.executable, "-S", "-c", "raise SystemExit(3)"'
OPENAI_AGENTS = """
import sys
from agents import Agent, OpenAIChatCompletionsModel
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

python, *words = [{command}]
server = MCPServerStdio(params={{"command": python, "args": words}})
model = OpenAIChatCompletionsModel("small", AsyncOpenAI(base_url="{address}", api_key="k"))

async def root_agent():
    {connect}
    return Agent(name="clerk", model=model, mcp_servers=[server])
"""
PYDANTIC_AI = """
import sys
from pydantic_ai import Agent
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

class Shop(FunctionToolset):
    async def get_tools(self, ctx):
        raise ConnectionError("Connection closed")

model = OpenAIChatModel("small", provider=OpenAIProvider(base_url="{address}", api_key="k"))
root_agent = Agent(model, toolsets=[Shop()])
"""
SOURCES = {
    "OpenAI Agents, a server that exits": (
        "agents",
        OPENAI_AGENTS.replace("{connect}", "await server.connect()"),
        "Connection closed",
    ),
    "OpenAI Agents, a server that is not connected": (
        "agents",
        OPENAI_AGENTS.replace("{connect}", "pass"),
        "Server not initialized",
    ),
    "pydantic-ai, a toolset that fails": ("pydantic_ai", PYDANTIC_AI, "ConnectionError: Connection closed"),
}


@pytest.mark.parametrize(("package", "source", "reason"), SOURCES.values(), ids=SOURCES)
async def test_a_server_of_tools_that_fails_makes_the_turn_an_error_without_a_model_call(
    package: str, source: str, reason: str, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    skip_without(package)
    skip_without("mcp")

    agent = loaded(source.format(command=COMMAND, address=endpoint.address))
    turn: TurnRecord = await played(agent, Session("s"), "hello")

    assert turn.stop_reason == "error"
    assert turn.error
    assert reason in turn.error.message
    assert endpoint.asked == []
