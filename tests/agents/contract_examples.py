"""One agent of every kind that rolls on `Roll a d6`, breaks on `break` and waits on `wait`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.agents import adk_source, framework_objects, langgraph_source, openai_agents_source, pydantic_ai_source
from tests.agents.roller import DECIDED

from evaldesk.model import ModelOptions, Session

LITELLM = '''
from evaldesk import LlmAgent

def roll_die(sides: int, state: dict) -> int:
    """Roll a die."""
    state["rolls"] = [*state.get("rolls", []), sides]
    return sides

root_agent = LlmAgent(name="dice", model="demo/dice?mistakes=0", tools=[roll_die], instruction="Roll.")
'''

PYTHON = (
    DECIDED
    + '''
from evaldesk.model import Event, ToolCall, Usage

SPENT = Event("usage", usage=Usage("small", tokens_in=11, tokens_out=5))

async def root_agent(message, state):
    """Rolls."""
    if message == "wait":
        yield Event("log", text="waiting")
    found = await decided(message)
    yield SPENT
    if isinstance(found, int):
        call = ToolCall("roll_die", {"sides": found})
        yield Event("tool_call", call=call)
        state["rolls"] = [*state.get("rolls", []), found]
        yield Event("tool_result", call=call, result=found, duration_ms=0.1)
        yield SPENT
        found = f"got {found}"
    yield found
'''
)

CREW = """
from tests.agents.crew_kind import Crew

root_agent = Crew(root_agent)
"""

OSMOSIS = (
    DECIDED
    + """
import json
from osmosis_ai.rollout import RolloutAgentLoop

TOOL = {"type": "function", "function": {"name": "roll_die", "description": "Roll a die.", "parameters": {
    "type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}}}

class Dice(RolloutAgentLoop):
    name = "dice"

    def get_tools(self, request):
        return [TOOL]

    async def run(self, ctx):
        messages = list(ctx.request.messages)
        await decided(messages[-1]["content"])
        for _ in range(ctx.request.max_turns):
            result = await ctx.chat(messages)
            messages.append(result.message)
            for call in result.tool_calls:
                sides = json.loads(call["function"]["arguments"])["sides"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(sides)})
            if not result.has_tool_calls:
                break
        return ctx.complete(messages)

root_agent = Dice
"""
)

BENCHMARK = (
    DECIDED
    + '''
SPENT = {"model": "small", "prompt_tokens": 11, "completion_tokens": 5}

async def root_agent(instance, metadata):
    """Rolls."""
    found = await decided(instance.question)
    history = []
    if isinstance(found, int):
        history = [
            {"id": 1, "action": "roll_die", "args": {"sides": found}},
            {"id": 2, "observation": "roll_die", "cause": 1, "content": str(found)},
        ]
    history.append({"id": 3, "action": "message", "source": "agent", "args": {"content": f"got {found}"}})
    return {"test_result": {}, "history": history, "metrics": {"token_usages": [SPENT] * len(history[1:])}}
'''
)


@dataclass(frozen=True)
class Example:
    """An agent that rolls on `Roll a d6`, and sessions in which it breaks or waits.

    `model` is what a run names for an agent that has none of its own; `remote` is the kind of one that is not
    imported. What is False there is nothing to be seen of: an endpoint for chats has no tools, a recording no wait.
    """

    source: str = ""
    has_model: bool = False
    broken: Session = field(default_factory=lambda: Session("broken"))
    waiting: Session = field(default_factory=lambda: Session("waiting"))
    package: str = ""
    model: str | None = None
    has_tools: bool = False
    keeps_state: bool = True
    remote: str = ""
    calls_tools: bool = True
    n_usages: int = 2
    can_wait: bool = True

    def session(self, session_id: str) -> Session:
        return Session(session_id, model=self.model)


def _remote(kind: str, **more: Any) -> Example:
    return Example(remote=kind, broken=Session("broken", model_options=ModelOptions(n_retries=0)), **more)


def _framework(source: str, package: str, *, has_model: bool = True) -> Example:
    return Example(source, has_model=has_model, package=package, has_tools=True)


def _called(kind: str, **more: Any) -> Example:
    return Example(framework_objects.SOURCES[kind], calls_tools=False, n_usages=0, **more)


EXAMPLES = {
    "agent_framework": _called("agent_framework", keeps_state=False),
    "agno": _called("agno"),
    "claude_agent": _called("claude_agent", keeps_state=False),
    "crewai": _called("crewai", keeps_state=False),
    "smolagents": _called("smolagents", keeps_state=False, can_wait=False, has_tools=True),
    "adk": _framework(adk_source.ROLLER, "google.adk"),
    "langgraph": _framework(langgraph_source.ROLLER, "langgraph", has_model=False),
    "openai_agents": _framework(openai_agents_source.ROLLER, "agents"),
    "pydantic_ai": _framework(pydantic_ai_source.ROLLER, "pydantic_ai"),
    "a2a": _remote("a2a", keeps_state=False),
    "adk_server": _remote("adk_server"),
    "benchmark": Example(BENCHMARK, keeps_state=False),
    "command": _remote("command"),
    "crew": Example(PYTHON + CREW),
    "http": _remote("http", has_tools=True),
    "http_chat": _remote("http_chat", has_model=True, keeps_state=False, calls_tools=False, n_usages=1),
    "litellm": Example(
        LITELLM,
        has_model=True,
        has_tools=True,
        broken=Session("broken", model="demo/none"),
        waiting=Session("waiting", model="demo/dice?delay_ms=3600000", is_streaming=True),
    ),
    "osmosis": Example(OSMOSIS, has_tools=True, keeps_state=False, model="demo/dice?mistakes=0"),
    "python": Example(PYTHON),
    "replay": _remote("replay", can_wait=False),
}
