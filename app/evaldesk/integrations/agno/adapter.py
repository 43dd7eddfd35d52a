"""Agents and teams of Agno: each session has a copy with a database in memory, and Agno's own session state.

An agent with a database of its own keeps its sessions there. (https://docs.agno.com)
"""

from __future__ import annotations

from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.framework_calls import CalledAgent, called_agent, session_object
from evaldesk.model import AgentRef, Session
from evaldesk.wire import plain_json

KIND = "agno"


def adapt(candidate: Any, ref: AgentRef) -> CalledAgent | None:
    """The agent around an Agent or Team; None for anything else."""
    if not (is_from(candidate, "agno") and hasattr(candidate, "arun") and hasattr(candidate, "deep_copy")):
        return None

    async def play(message: str, session: Session) -> str:
        own = session_object(session, lambda: _copy(candidate))
        response = await own.arun(
            message, session_id=session.id, user_id=session.user_id, session_state=dict(session.state)
        )
        state = plain_json(getattr(response, "session_state", None))
        if isinstance(state, dict):
            session.state = {key: value for key, value in state.items() if key not in _OWN_KEYS}
        return str(response.get_content_as_string() if response.content is not None else "")

    return called_agent(
        ref,
        KIND,
        play,
        name=candidate.name,
        instruction=getattr(candidate, "instructions", ""),
        model=getattr(getattr(candidate, "model", None), "id", None),
        tools=_list_of(getattr(candidate, "tools", None)),
        shows_state=True,
    )


_OWN_KEYS = frozenset({"current_session_id", "current_user_id", "current_run_id"})
"""Keys that Agno adds to the state of a session."""


def _list_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _copy(agent: Any) -> Any:
    from agno.db.in_memory import InMemoryDb

    own = agent.deep_copy()
    if own.db is None:
        own.db, own.add_history_to_context = InMemoryDb(), True
    return own
