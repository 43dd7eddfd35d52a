"""Agents of pydantic-ai that delegate to others, compared with the spans of the package itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.agents.pydantic_ai_source import SCRIPT

from evaldesk.model import Session
from evaldesk.model.agent_tree import agent_tree

skip_without("pydantic_ai")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the package warns of is not ours

TREE = (
    SCRIPT
    + '''
def has_result(messages):
    return any(part.part_kind == "tool-return" for message in messages for part in message.parts)

scout = Agent(scripted(lambda word, messages: (
    said("nothing there") if has_result(messages) else called("look", {"place": "attic"})
)), name="scout")

@scout.tool_plain
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing in {place}"

root_agent = Agent(scripted(lambda word, messages: (
    said("it is empty") if has_result(messages) else called("ask_scout", {"question": "look"})
)), name="lead")

@root_agent.tool
async def ask_scout(context: RunContext, question: str) -> str:
    """Ask the scout."""
    return (await scout.run(question, usage=context.usage)).output
'''
)


async def test_a_delegation_is_the_tree_of_the_packages_own_spans(loaded: Any, play: Any) -> None:
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
        ("agent_message", "lead", "", ""),
    ]
    turn = session.turns[0]
    assert ([call.name for call in turn.tool_calls], turn.answer) == (["ask_scout"], "it is empty")
    tree = [(each.name, each.parent, each.n_entries, each.n_calls, each.n_model_calls) for each in agent_tree([turn])]
    assert tree == [("lead", "", 1, 1, 2), ("scout", "lead", 1, 1, 2)]
    assert await spans_of_package(agent.agent) == [
        ("agent", "lead", ""),
        ("tool", "ask_scout", "lead"),
        ("agent", "scout", "lead"),
        ("tool", "look", "scout"),
    ]


async def spans_of_package(agent: Any) -> list[tuple[str, str, str]]:
    """Kind, name and nearest agent above of each agent and tool, as the package's own spans have them."""
    skip_without("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from pydantic_ai import Agent
    from pydantic_ai.models.instrumented import InstrumentationSettings

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        await agent.run("go")
    finally:
        Agent.instrument_all(False)
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    by_id: dict[int, Any] = {span.context.span_id: span for span in spans if span.context}

    def agent_above(span: Any) -> str:
        above = by_id.get(span.parent.span_id) if span.parent else None
        while above is not None and above.attributes.get("gen_ai.operation.name") != "invoke_agent":
            above = by_id.get(above.parent.span_id) if above.parent else None
        return str(above.attributes["gen_ai.agent.name"]) if above else ""

    kinds = {"invoke_agent": ("agent", "gen_ai.agent.name"), "execute_tool": ("tool", "gen_ai.tool.name")}
    return [
        (kinds[operation][0], str((span.attributes or {})[kinds[operation][1]]), agent_above(span))
        for span in spans
        if (operation := str((span.attributes or {}).get("gen_ai.operation.name"))) in kinds
    ]
