"""A toolset of google-adk that fails to load makes the trial errored: the agent was asked without its tools."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.agents.adk_source import SCRIPT
from tests.agents.installed import skip_without

from evaldesk.model import Session, TurnRecord

skip_without("google.adk")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend

OWN = (
    SCRIPT
    + """
from google.adk.tools.base_toolset import BaseToolset

class Shop(BaseToolset):
    fails = True

    async def get_tools(self, readonly_context=None):
        if self.fails:
            raise ConnectionError("the shop is closed\\nfor today")
        return []

    async def close(self):
        pass

def answer(word, request):
    return said("I have no tools.")

root_agent = LlmAgent(name="clerk", model=Scripted(answer=answer), tools=[Shop()])
"""
)
MCP = (
    SCRIPT
    + """
import sys
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters

def answer(word, request):
    return said("I have no tools.")

server = StdioServerParameters(command=sys.executable, args=["-S", "-c", "raise SystemExit(3)"])
tools = McpToolset(connection_params=StdioConnectionParams(server_params=server, timeout=20))
root_agent = LlmAgent(name="clerk", model=Scripted(answer=answer), tools=[tools])
"""
)
SUB_AGENT = (
    OWN
    + """
below, root_agent = root_agent, LlmAgent(
    name="boss", model=Scripted(answer=lambda word, request: said("", ("transfer_to_agent", {"agent_name": "clerk"}))),
    sub_agents=[root_agent],
)
"""
)


@pytest.mark.parametrize(
    ("source", "reason"),
    [(OWN, "Shop: ConnectionError: the shop is closed"), (SUB_AGENT, "Shop: "), (MCP, "McpToolset: ")],
    ids=["a toolset of its own", "one of a sub-agent", "a server of MCP that exits"],
)
async def test_a_toolset_that_fails_to_load_makes_the_turn_an_error(
    source: str, reason: str, loaded: Any, played: Any
) -> None:
    turn: TurnRecord = await played(loaded(source), Session("s"), "hello")

    assert turn.stop_reason == "error"
    assert turn.error
    assert turn.error.kind == "toolset"
    assert f"the agent was asked without its tools: {reason}" in turn.error.message
    assert "\n" not in turn.error.message


async def test_a_toolset_that_loads_later_makes_the_next_turn_good(loaded: Any, played: Any) -> None:
    agent, session = loaded(OWN), Session("s")
    first: TurnRecord = await played(agent, session, "hello")
    shop = sys.modules["some_agent.agent"].Shop
    shop.fails = False

    second: TurnRecord = await played(agent, session, "again")

    assert (bool(first.error), second.error, second.answer) == (True, None, "I have no tools.")
