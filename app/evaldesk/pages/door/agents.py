"""Agents for coding agents."""

from __future__ import annotations

from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.desk.doctor import ask_agents
from evaldesk.pages.agents import agent_facts


async def agent_items(desk: Desk) -> dict[str, Any]:
    """The agents as `evaldesk agents --json` prints them; those of a folder without trust are not imported."""
    agents = await ask_agents(desk.settings, desk.trust)
    return {"items": [agent_facts(agent) for agent in agents], "page": "/agents"}
