"""Floor 2: agents. Found in folders, loaded in a worker, and translated by an adapter into one protocol."""

from evaldesk.agents.agent import AGENTS, Agent, AgentKind
from evaldesk.agents.finding import agent_ref, find_agents
from evaldesk.agents.loading import adapt_object, load_agent
from evaldesk.agents.own.declared import declared_refs, named_ref, with_declared

__all__ = [
    "AGENTS",
    "Agent",
    "AgentKind",
    "adapt_object",
    "agent_ref",
    "declared_refs",
    "find_agents",
    "load_agent",
    "named_ref",
    "with_declared",
]
