"""The description of an agent, in words and as plain JSON: the same for the page and the command line."""

from __future__ import annotations

from evaldesk.agents import AGENTS
from evaldesk.agents.discovery import is_imported
from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import AgentDescription, AgentRef, JsonObject, JsonValue
from evaldesk.model.json_text import json_line
from evaldesk.model.visibility import PARTS
from evaldesk.run_options import SANDBOX
from evaldesk.settings import Settings
from evaldesk.wire import plain_json

kind_words = AGENTS.title


def agent_facts(agent: FoundAgent) -> dict[str, JsonValue]:
    """All that is known of an agent as plain JSON; `error` where it does not load."""
    facts: dict[str, JsonValue] = {
        "id": agent.id,
        "state": agent.state,
        "target": agent.ref.target,
        "folder": agent.ref.folder,
        "n_files": agent.n_files,
        "python": agent.ref.python,
        "container": agent.ref.container.sentence if agent.ref.container else "",
    }
    if agent.description:
        facts |= _agent_fields(agent.description)
        facts["own_name"] = agent.own_name
        facts["seen"] = {part: agent.visibility.level(part) for part in PARTS}
    facts["name"] = agent.name
    if agent.error:
        facts["error"] = {"kind": agent.error.kind, "message": agent.error.message, "trace": agent.error.trace}
    return facts


def reach_words(ref: AgentRef, settings: Settings) -> str:
    """The files of this desk that the agent's own code can read; empty where it is isolated, or runs elsewhere."""
    isolation = ref.isolation or settings.isolation
    if ref.container or isolation in (SANDBOX, "container") or not is_imported(ref):
        return ""
    return "eval sets and results on this disk, with the answers that are expected of it"


def errored_words(runs: StoredRuns, agent_id: str) -> str:
    """`5 of the last 200 trials` of an agent; empty where none of its trials was played."""
    counts = runs.recent_trials(agent_id)
    if not counts.done:
        return ""
    return (
        f"{counts.errored:,} of the last {counts.done:,} trials" if counts.done > 1 else f"{counts.errored} of 1 trial"
    )


def signature(parameters: JsonObject) -> str:
    """A JSON schema of arguments in the way one writes them in code: `sides: integer, nums: list[integer]`."""
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return ""
    value = parameters.get("required")
    names = value if isinstance(value, list) else []
    return ", ".join(
        f"{name}: {_type(schema)}{'' if name in names else _default(schema)}" for name, schema in properties.items()
    )


def _agent_fields(description: AgentDescription) -> dict[str, JsonValue]:
    return {
        "name": description.name,
        "kind": description.kind,
        "description": description.description,
        "model": description.model,
        "instruction": description.instruction,
        "missing": list(description.missing),
        "initial_state": plain_json(description.initial_state),
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": plain_json(tool.parameters)}
            for tool in description.tools
        ],
        "sub_agents": [_agent_fields(below) for below in description.sub_agents],
    }


def _type(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(json_line(item) for item in schema["enum"])
    options = schema.get("anyOf")
    if isinstance(options, list):
        return " | ".join(_type(option) for option in options)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list[{_type(schema.get('items'))}]"
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _default(schema: object) -> str:
    has_default = isinstance(schema, dict) and "default" in schema
    return f" = {json_line(schema['default'])}" if has_default and isinstance(schema, dict) else "?"
