"""Agents for coding agents."""

from __future__ import annotations

from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.desk.doctor import ask_agents
from evaldesk.pages.agents import agent_facts
from evaldesk.pages.door.fit import items_page


async def agent_items(desk: Desk, cursor: int = 0, limit: int | None = None) -> dict[str, Any]:
    """The agents as `evaldesk agents --json` prints them; those of a folder without trust are not imported."""
    agents = await ask_agents(desk.settings, desk.trust)
    items = [agent_facts(agent) for agent in agents[cursor:][:limit]]
    return items_page(items, cursor, len(agents)) | {"page": "/agents"}
