"""The agents: what each is, and whether it loads."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from evaldesk.desk.agents import FoundAgent
from evaldesk.model import JsonObject
from evaldesk.web.render import desk_of, page
from evaldesk.web.words import as_line


async def index(request: Request) -> Response:
    """Every agent that was found; the page asks again while one is loading."""
    desk = desk_of(request)
    await desk.agents.look_again()
    agents = desk.agents.list()
    return page(
        request,
        "agents/index.html",
        block="agents",
        agents=agents,
        is_loading=any(agent.state in {"unknown", "loading"} for agent in agents),
        is_sample=desk.agents.is_sample,
        changed_at=changed_at,
        signature=signature,
    )


async def look_again(request: Request) -> Response:
    """Look for agents that came or went, and try again those that did not load."""
    await desk_of(request).agents.look_again(ask_failed=True)
    return RedirectResponse("/agents", 303)


def changed_at(agent: FoundAgent) -> datetime | None:
    """When a file of the agent was last changed."""
    return datetime.fromtimestamp(agent.changed_ns / 1e9, UTC) if agent.changed_ns else None


def signature(parameters: JsonObject) -> str:
    """A JSON schema of arguments in the way one writes them in code: `sides: integer, nums: list[integer]`."""
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return ""
    required = parameters.get("required")
    needed = required if isinstance(required, list) else []
    return ", ".join(
        f"{name}: {_type(schema)}{'' if name in needed else _default(schema)}" for name, schema in properties.items()
    )


def _type(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(as_line(item) for item in schema["enum"])
    options = schema.get("anyOf")
    if isinstance(options, list):
        return " | ".join(_type(option) for option in options)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list[{_type(schema.get('items'))}]"
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _default(schema: object) -> str:
    has_default = isinstance(schema, dict) and "default" in schema
    return f" = {as_line(schema['default'])}" if has_default and isinstance(schema, dict) else "?"


routes = [
    Route("/agents", index),
    Route("/agents/discovery", look_again, methods=["POST"]),
]
