"""Agents of Microsoft's Agent Framework: one AgentSession for each session. (https://learn.microsoft.com/agent-framework)"""

from __future__ import annotations

from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.framework_calls import CalledAgent, called_agent, session_object
from evaldesk.model import AgentRef, Session

KIND = "agent_framework"


def adapt(candidate: Any, ref: AgentRef) -> CalledAgent | None:
    """The agent around an object with `run` and `create_session`; None for anything else."""
    if not (is_from(candidate, "agent_framework") and hasattr(candidate, "run")):
        return None
    new_session = getattr(candidate, "create_session", None) or getattr(candidate, "get_new_thread", None)
    if new_session is None:
        return None
    argument = "session" if hasattr(candidate, "create_session") else "thread"  # its name before 1.0

    async def play(message: str, session: Session) -> str:
        own = session_object(session, new_session)
        return str(await candidate.run(message, **{argument: own}))

    options = getattr(candidate, "default_options", None) or {}
    return called_agent(
        ref,
        KIND,
        play,
        name=getattr(candidate, "name", ""),
        instruction=options.get("instructions"),
        model=getattr(getattr(candidate, "client", None), "model", None),
        tools=options.get("tools") or (),
    )
