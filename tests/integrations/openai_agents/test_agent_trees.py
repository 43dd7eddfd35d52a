"""Agents of the OpenAI Agents SDK that call and hand over to others, compared with the tracing of the SDK itself."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio.to_thread
import pytest
from tests.agents.installed import skip_without
from tests.agents.openai_agents_source import SCRIPT

from evaldesk.model import Session
from evaldesk.model.agent_tree import agent_tree

skip_without("agents")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the package warns of is not ours

TREE = (
    SCRIPT
    + '''
from agents import function_tool

@function_tool
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing in {place}"

def n_results(items):
    return sum(isinstance(item, dict) and item.get("type") == "function_call_output" for item in items)

scout = Agent(name="scout", tools=[look], model=Scripted(
    lambda word, items: said("nothing there") if n_results(items) else called("look", {"place": "attic"})
))
clerk = Agent(name="clerk", model=Scripted(lambda word, items: said("all is noted")))
STEPS = (lambda: called("ask_scout", {"input": "look"}), lambda: called("transfer_to_clerk", {}))
root_agent = Agent(
    name="lead",
    tools=[scout.as_tool("ask_scout", "Asks the scout.")],
    handoffs=[clerk],
    model=Scripted(lambda word, items: STEPS[min(n_results(items), 1)]()),
)
'''
)


def spans_of_sdk(agent: Any) -> list[tuple[str, str, str]]:
    """Kind, name and nearest agent above of each agent and tool, as the SDK's own tracing has them."""
    from agents import Runner, set_trace_processors
    from agents.tracing import TracingProcessor

    spans: list[Any] = []

    class Collector(TracingProcessor):  # type: ignore[misc] # the package may be missing
        def on_trace_start(self, trace: Any) -> None: ...
        def on_trace_end(self, trace: Any) -> None: ...
        def on_span_start(self, span: Any) -> None:
            spans.append(span)

        def on_span_end(self, span: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

    set_trace_processors([Collector()])
    try:
        asyncio.run(Runner.run(agent, "go"))  # `run_sync` leaves the loop of its thread open
    finally:
        set_trace_processors([])
    by_id = {span.span_id: span for span in spans}

    def agent_above(span: Any) -> str:
        above = by_id.get(span.parent_id)
        while above is not None and above.span_data.type != "agent":
            above = by_id.get(above.parent_id)
        return above.span_data.name if above else ""

    return [
        (span.span_data.type, span.span_data.name, agent_above(span))
        for span in spans
        if span.span_data.type in ("agent", "function")
    ]


async def test_an_agent_tool_and_a_handoff_are_the_tree_of_the_sdks_own_tracing(loaded: Any, play: Any) -> None:
    agent = loaded(TREE)
    session = Session("s")

    events = await play(agent, session, "go")

    told = [(each.kind, each.author, each.parent, each.within) for each in events if each.kind != "usage"]
    assert told == [
        ("tool_call", "lead", "", ""),
        ("tool_call", "scout", "lead", "ask_scout"),
        ("tool_result", "scout", "lead", "ask_scout"),
        ("agent_message", "scout", "lead", "ask_scout"),
        ("tool_result", "lead", "", ""),
        ("tool_call", "lead", "", ""),
        ("tool_result", "lead", "", ""),
        ("agent_message", "clerk", "lead", ""),
    ]
    turn = session.turns[0]
    assert [call.name for call in turn.tool_calls] == ["ask_scout", "transfer_to_clerk"]
    assert turn.answer == "all is noted"
    tree = [(each.name, each.parent, each.n_entries, each.n_calls, each.n_model_calls) for each in agent_tree([turn])]
    assert tree == [("lead", "", 1, 2, 2), ("scout", "lead", 1, 1, 2), ("clerk", "lead", 1, 0, 1)]
    spans = await anyio.to_thread.run_sync(spans_of_sdk, agent.sdk_agent)
    # A handoff ends the agent before it there, so the next has none above it.
    assert {name for kind, name, _ in spans if kind == "agent"} == {name for name, *_ in tree}
    assert ("agent", "scout", "lead") in spans
    ours = [(event.call.name, event.author) for event in events if event.kind == "tool_call" and event.call]
    theirs = [(name, above) for kind, name, above in spans if kind == "function"]
    assert theirs == [each for each in ours if each[0] != "transfer_to_clerk"]


async def test_own_hooks_of_an_agent_are_called_inside_and_outside_of_tools(loaded: Any, play: Any) -> None:
    source = (
        TREE
        + """
from agents import AgentHooks

SEEN = []

class Own(AgentHooks):
    async def on_start(self, context, agent):
        SEEN.append(agent.name)

scout.hooks, root_agent.hooks = Own(), Own()
"""
    )
    agent = loaded(source)

    await play(agent, Session("s"), "go")

    assert agent.sdk_agent.hooks._own.__class__.__name__ == "Own"
    import sys

    assert sys.modules[agent.ref.target.partition(":")[0]].SEEN == ["lead", "scout"]
