"""Agents of CrewAI get the earlier messages; a crew gets the message as an input."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.framework_objects import CREWAI, sessions_of

from evaldesk.model import Session

pytestmark = pytest.mark.anyio


async def test_a_second_message_goes_on_with_its_session(loaded: Any, played: Any) -> None:
    agent, session = loaded(CREWAI), Session("s")

    turns = [await played(agent, session, message) for message in ("hi", "again")]
    await played(agent, Session("other"), "hi")

    assert [(turn.error, turn.answer) for turn in turns] == [(None, "hello there")] * 2
    assert sessions_of() == [["hi"], ["hi", "hello there", "again"], ["hi"]]


async def test_a_crew_gets_the_message_and_the_state_as_inputs(loaded: Any, played: Any) -> None:
    agent = loaded(CREWAI + "\nroot_agent = Crew()\n")

    turn = await played(agent, Session("s", state={"city": "Rome"}), "hi")

    assert turn.answer == "hello there"
    assert sessions_of() == [{"city": "Rome", "message": "hi"}]
