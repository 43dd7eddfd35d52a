"""What an agent of google-adk is: instruction, model, tools and sub-agents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from evaldesk.agents.adk_models import model_name
from evaldesk.agents.instruction import placeholders
from evaldesk.llm import missing_keys
from evaldesk.model import AgentDescription, JsonObject, ToolDescription
from evaldesk.wire import plain

MAX_DEPTH = 8
DEMO_PREFIX = "demo/"


def described(root: Any) -> AgentDescription:
    """The root of the tree; its initial state has every key that an instruction needs, empty."""
    return _described(root, "adk", depth=0)


def _described(agent: Any, kind: str, depth: int) -> AgentDescription:
    instruction = _instruction(agent)
    model = model_name(agent)
    below = [_described(other, how, depth + 1) for other, how in _below(agent)] if depth < MAX_DEPTH else []
    state: JsonObject = dict.fromkeys(placeholders(instruction), "")
    for other in below:
        state = {**other.initial_state, **state}
    missing = dict.fromkeys([*missing_keys(model, os.environ), *(name for other in below for name in other.missing)])
    return AgentDescription(
        name=str(agent.name),
        kind=kind,
        description=str(getattr(agent, "description", "") or ""),
        instruction=instruction,
        model=model or None,
        tools=tuple(_tool(tool) for tool in getattr(agent, "tools", ())),
        is_demo=model.startswith(DEMO_PREFIX),
        initial_state=state,
        sub_agents=tuple(below),
        missing=tuple(missing),
    )


def _below(agent: Any) -> Iterator[tuple[Any, str]]:
    """The agents under `agent`, and what each is to it."""
    for other in getattr(agent, "sub_agents", ()):
        yield other, type(other).__name__
    for tool in getattr(agent, "tools", ()):
        if hasattr(tool, "agent"):
            yield tool.agent, "AgentTool"


def _instruction(agent: Any) -> str:
    found = getattr(agent, "instruction", "")
    if callable(found):
        return f"made by {getattr(found, '__name__', 'a function')} when a turn begins"
    return str(found or "")


def _tool(tool: Any) -> ToolDescription:
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.function_tool import FunctionTool

    if isinstance(tool, BaseToolset):
        return ToolDescription(type(tool).__name__, "A toolset; its tools are known once it is connected.")
    wrapped = tool if isinstance(tool, BaseTool) else FunctionTool(tool)
    try:
        declaration = wrapped._get_declaration()  # what each kind of tool overrides to say what it takes
    except Exception as error:  # a signature that ADK cannot put into a schema
        return ToolDescription(wrapped.name, f"{wrapped.description}\n(its schema cannot be made: {error})")
    if declaration is None:
        return ToolDescription(wrapped.name, wrapped.description)
    return ToolDescription(wrapped.name, declaration.description or wrapped.description, _schema(declaration))


def _schema(declaration: Any) -> JsonObject:
    found = getattr(declaration, "parameters_json_schema", None)
    if found is None and declaration.parameters is not None:
        found = _lowered(declaration.parameters.model_dump(mode="json", exclude_none=True))
    schema = plain(found or {})
    return schema if isinstance(schema, dict) else {}


def _lowered(schema: Any) -> Any:
    """Google writes types in capitals: OBJECT, STRING."""
    if isinstance(schema, list):
        return [_lowered(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lowered(value)
        for key, value in schema.items()
    }
