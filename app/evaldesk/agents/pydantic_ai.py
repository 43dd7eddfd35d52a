"""Agents of pydantic-ai, run node by node."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.framework_tools import watched
from evaldesk.agents.frameworks import is_from
from evaldesk.agents.pydantic_ai_messages import Teller, past_messages
from evaldesk.agents.pydantic_ai_model import model_of, settings_of
from evaldesk.agents.pydantic_ai_tools import with_watched_tools
from evaldesk.agents.shared_loop import Tell, events_told
from evaldesk.llm import missing_keys, model_error
from evaldesk.llm.brought_clients import watch_clients
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, Session, ToolDescription
from evaldesk.wire import plain

MEMORY = "pydantic_ai"


def adapt(found: object, ref: AgentRef) -> PydanticAgent | None:
    """The agent around a `pydantic_ai.Agent`; None for anything else."""
    if not is_from(found, "pydantic_ai"):
        return None
    from pydantic_ai.agent import AbstractAgent

    return PydanticAgent(found, ref) if isinstance(found, AbstractAgent) else None


@dataclass(frozen=True, slots=True)
class PydanticAgent:
    """An agent of pydantic-ai. The session state is its `deps`."""

    found: Any
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """Name, instructions, model, and the tools that were given to it as functions."""
        model = _model_name(self.found)
        return AgentDescription(
            name=self.found.name or self.ref.id,
            kind="pydantic_ai",
            instruction=_instruction(self.found),
            model=model or None,
            tools=tuple(_tools(self.found)),
            missing=missing_keys(model, os.environ) if isinstance(self.found.model, str) else (),
        )

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the agent. An output that is no text is its answer as JSON. Raises ModelError."""
        async for event in events_told(lambda tell: self._run(session, message, tell)):
            yield event

    async def _run(self, session: Session, message: str, tell: Tell) -> None:
        from pydantic_ai import UsageLimitExceeded, UsageLimits

        calls = watched(session, tell)
        model = session.model or _model_name(self.found)
        teller = Teller(tell, author=self.found.name or self.ref.id, model=model)
        asked = session.model_options
        options: dict[str, Any] = {
            "message_history": self._before(session),
            "deps": session.state,
            "model_settings": settings_of(asked),
        }
        if asked.max_turns:
            options["usage_limits"] = UsageLimits(request_limit=asked.max_turns)
        try:
            options |= model_of(session.model, asked, self.found.model, own=_model_name(self.found))
            watch_clients()  # that of the model may just have been imported
            with with_watched_tools(self.found):
                async with self.found.iter(message, **options) as run:
                    async for node in run:
                        await teller.node(node, run.ctx if session.is_streaming else None)
        except UsageLimitExceeded as error:
            kind = "max_turns" if asked.max_turns else "max_iterations"
            await tell(Event("error", error=ErrorRecord(kind, f"the agent never answered: {error}")))
            return
        except Exception as error:
            calls.check()
            refused = model_error(error, model or "the model")
            if refused:
                raise refused from error
            raise
        calls.check()
        if not isinstance(run.result.output, str):
            text = json.dumps(plain(_as_json(run.result.output)), ensure_ascii=False)
            await tell(Event("agent_message", author=teller.author, text=text))
        session.memory[MEMORY] = (len(session.turns) + 1, run.result.all_messages())

    def _before(self, session: Session) -> list[Any]:
        known: Any = session.memory.get(MEMORY)
        is_known = known and known[0] == len(session.turns)
        return list(known[1]) if is_known else past_messages(session.turns)


def _model_name(agent: Any) -> str:
    """The name of the agent's model as `provider/name`; empty when it has none yet."""
    found = agent.model
    if found is None:
        return ""
    return str(found).replace(":", "/", 1) if isinstance(found, str) else str(found.model_name)


def _instruction(agent: Any) -> str:
    """The instructions that are text; those that a function makes are said to be."""
    found = [*getattr(agent, "_instructions", ()), *getattr(agent, "_system_prompts", ())]
    texts = [item if isinstance(item, str) else "(made by a function when a turn begins)" for item in found]
    return "\n\n".join(texts)


def _tools(agent: Any) -> list[ToolDescription]:
    tools = [tool for toolset in agent.toolsets for tool in getattr(toolset, "tools", {}).values()]
    return [_tool(tool) for tool in tools]


def _tool(tool: Any) -> ToolDescription:
    found = getattr(tool, "tool_def", tool)
    schema = plain(getattr(found, "parameters_json_schema", None) or {})
    return ToolDescription(found.name, found.description or "", schema if isinstance(schema, dict) else {})


def _as_json(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)
