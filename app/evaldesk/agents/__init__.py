"""Floor 2: agents. Found in folders, loaded in a worker, and translated by an adapter into one protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evaldesk.agents.agent import AGENTS, Agent, AgentKind
from evaldesk.agents.discovery import agent_ref, find_agents
from evaldesk.agents.own.tables import declared_refs, merge_refs, named_ref

if TYPE_CHECKING:
    from evaldesk.agents.loading import adapt_object, load_agent

__all__ = [
    "AGENTS",
    "Agent",
    "AgentKind",
    "adapt_object",
    "agent_ref",
    "declared_refs",
    "find_agents",
    "load_agent",
    "merge_refs",
    "named_ref",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import `evaldesk.agents.loading` on first use: only players import the code of agents."""
        if name not in ("adapt_object", "load_agent"):
            raise AttributeError(f"module 'evaldesk.agents' has no attribute {name!r}")
        from evaldesk.agents import loading

        return getattr(loading, name)
