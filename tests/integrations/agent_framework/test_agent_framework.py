"""Agents of Agent Framework: one AgentSession for each session."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.framework_objects import AGENT_FRAMEWORK, sessions_of

from evaldesk.model import Session

pytestmark = pytest.mark.anyio


async def test_a_second_message_goes_on_with_its_session(loaded: Any, played: Any) -> None:
    agent, session = loaded(AGENT_FRAMEWORK), Session("s")

    turns = [await played(agent, session, message) for message in ("hi", "again")]
    await played(agent, Session("other"), "hi")

    assert [(turn.error, turn.answer) for turn in turns] == [(None, "hello there")] * 2
    assert sessions_of() == [["hi"], ["hi", "again"], ["hi"]]
