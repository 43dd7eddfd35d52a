"""Agents and crews of CrewAI. (https://docs.crewai.com)

An agent gets the earlier messages of the session. A crew keeps no conversation: it gets the message as its input
`message`, beside the values of the session state.
"""

from __future__ import annotations

from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.framework_calls import CalledAgent, called_agent
from evaldesk.model import AgentRef, Session

KIND = "crewai"


def adapt(candidate: Any, ref: AgentRef) -> CalledAgent | None:
    """The agent around an Agent, or around a Crew; None for anything else."""
    if not (is_from(candidate, "crewai") and hasattr(candidate, "kickoff_async")):
        return None
    is_crew = hasattr(candidate, "tasks")

    async def play(message: str, session: Session) -> str:
        own = candidate.copy()
        if is_crew:
            output = await own.kickoff_async(inputs={**session.state, "message": message})
        else:
            output = await own.kickoff_async([*_earlier_messages(session), {"role": "user", "content": message}])
        return str(output.raw)

    agents = list(candidate.agents) if is_crew else [candidate]
    return called_agent(
        ref,
        KIND,
        play,
        name=getattr(candidate, "name", None) or getattr(candidate, "role", ""),
        instruction="" if is_crew else candidate.goal,
        model=getattr(getattr(agents[0], "llm", None), "model", None) if agents else None,
        tools=[tool for agent in agents for tool in agent.tools or ()],
    )


def _earlier_messages(session: Session) -> list[dict[str, str]]:
    messages = []
    for turn in session.turns:
        messages.append({"role": "user", "content": turn.query})
        messages += [{"role": "assistant", "content": turn.answer}] if turn.answer else []
    return messages
