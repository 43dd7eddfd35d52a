"""Agents of the OpenAI Agents SDK, run by its own runner."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.framework_tools import watched
from evaldesk.agents.frameworks import is_from
from evaldesk.agents.openai_agents_hooks import as_json, hooks_of, model_name
from evaldesk.agents.openai_agents_input import input_items, model_of
from evaldesk.agents.openai_agents_tools import reachable, seen
from evaldesk.agents.shared_loop import Tell, events_told
from evaldesk.llm import missing_keys, model_error
from evaldesk.llm.brought_clients import watch_clients
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    ErrorRecord,
    Event,
    Session,
    ToolDescription,
)
from evaldesk.wire import plain

MEMORY = "openai_agents"
MAX_DEPTH = 8
DEFAULT_TURNS = 25


def adapt(found: object, ref: AgentRef) -> OpenAIAgent | None:
    """The agent around an `agents.Agent`; None for anything else."""
    if not is_from(found, "agents"):
        return None
    try:
        from agents import Agent, Runner  # noqa: F401 - a package of the user's may have the same name
    except ImportError:
        return None
    if not isinstance(found, Agent):
        return None
    for agent in reachable(found):
        agent.tools = [seen(tool) for tool in agent.tools]
    return OpenAIAgent(found, ref)


@dataclass(frozen=True, slots=True)
class OpenAIAgent:
    """An agent of the SDK with its handoffs. The session state is the context of its tools."""

    found: Any
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """The agent, and those it hands over to as a tree."""
        return _described(self.found, "openai_agents", depth=0, seen=set())

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the agent that spoke last. Raises ModelError for what the provider refuses."""
        async for event in events_told(lambda tell: self._run(session, message, tell)):
            yield event

    async def _run(self, session: Session, message: str, tell: Tell) -> None:
        from agents import MaxTurnsExceeded, RunConfig, Runner

        calls = watched(session, tell)
        starting, items = self._before(session)
        model = model_of(session)
        watch_clients()  # LiteLLM may just have been imported
        options = {
            "starting_agent": starting,
            "input": [*items, {"role": "user", "content": message}],
            "context": session.state,
            "max_turns": session.model_options.max_turns or DEFAULT_TURNS,
            "hooks": hooks_of(tell),
            "run_config": RunConfig(tracing_disabled=True, **model),
        }
        try:
            if session.is_streaming:
                result = Runner.run_streamed(**options)
                async for event in result.stream_events():
                    if getattr(getattr(event, "data", None), "type", "") == "response.output_text.delta":
                        await tell(Event("agent_message", text=event.data.delta, is_partial=True))
            else:
                result = await Runner.run(**options)
        except MaxTurnsExceeded as error:
            kind = "max_turns" if session.model_options.max_turns else "max_iterations"
            await tell(Event("error", error=ErrorRecord(kind, f"the agent never answered: {error}")))
            return
        except Exception as error:
            calls.check()
            refused = model_error(error, session.model or model_name(starting) or "openai")
            if refused:
                raise refused from error
            raise
        calls.check()
        if not isinstance(result.final_output, str):
            text = json.dumps(plain(as_json(result.final_output)), ensure_ascii=False)
            await tell(Event("log", author=result.last_agent.name, text=f"final output: {text}"))
        session.memory[MEMORY] = (len(session.turns) + 1, result.last_agent, result.to_input_list())

    def _before(self, session: Session) -> tuple[Any, list[Any]]:
        """The agent that spoke last, and the conversation until now."""
        known: Any = session.memory.get(MEMORY)
        if known and known[0] == len(session.turns):
            return known[1], known[2]
        authors = [event.author for turn in session.turns for event in turn.events if event.kind == "agent_message"]
        named = {agent.name: agent for agent in reachable(self.found)}
        return named.get(authors[-1], self.found) if authors else self.found, input_items(session.turns)


def _described(agent: Any, kind: str, depth: int, seen: set[int]) -> AgentDescription:
    seen = {*seen, id(agent)}
    below = [
        _described(other, "handoff", depth + 1, seen)
        for other in agent.handoffs
        if hasattr(other, "instructions") and depth < MAX_DEPTH and id(other) not in seen
    ]
    named = [
        AgentDescription(name=str(other.agent_name), kind="handoff")
        for other in agent.handoffs
        if hasattr(other, "agent_name")
    ]
    model = model_name(agent)
    is_made = callable(agent.instructions)
    return AgentDescription(
        name=str(agent.name),
        kind=kind,
        description=str(agent.handoff_description or ""),
        instruction="made by a function when a turn begins" if is_made else str(agent.instructions or ""),
        model=model,
        tools=tuple(_tool(tool) for tool in agent.tools),
        sub_agents=(*below, *named),
        missing=missing_keys(model, os.environ) if agent.model is None or isinstance(agent.model, str) else (),
    )


def _tool(tool: Any) -> ToolDescription:
    schema = plain(getattr(tool, "params_json_schema", None) or {})
    description = str(getattr(tool, "description", "") or "")
    return ToolDescription(str(tool.name), description, schema if isinstance(schema, dict) else {})
