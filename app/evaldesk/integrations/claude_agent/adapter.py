"""Agents of the Claude Agent SDK: a `ClaudeAgentOptions` object; each message resumes the SDK's own session.

Its client is a process, whose model calls are seen by a gateway. (https://docs.claude.com/en/api/agent-sdk)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.framework_calls import CalledAgent, called_agent, session_object
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef, Session

KIND = "claude_agent"


def adapt(candidate: Any, ref: AgentRef) -> CalledAgent | None:
    """The agent of these options; None for anything else."""
    if not (is_from(candidate, "claude_agent_sdk") and type(candidate).__name__ == "ClaudeAgentOptions"):
        return None

    async def play(message: str, session: Session) -> AsyncIterator[str]:
        from claude_agent_sdk import query

        ids: dict[str, str] = session_object(session, dict)
        options = replace(candidate, resume=ids["session"]) if "session" in ids else candidate
        async for each in query(prompt=message, options=options):
            if type(each).__name__ != "ResultMessage":
                continue
            ids["session"] = each.session_id
            if each.is_error:
                raise AgentError(f"the Claude Agent SDK ended with {each.subtype}: {each.result or 'no reason'}")
            yield str(each.result or "")

    prompt = candidate.system_prompt
    return called_agent(
        ref,
        KIND,
        play,
        instruction=prompt.get("append") if isinstance(prompt, dict) else prompt,
        model=candidate.model,
    )
