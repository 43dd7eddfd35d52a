"""Agents of Agno: a copy for each session, and Agno's session state."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.framework_objects import AGNO, sessions_of

from evaldesk.model import Session

pytestmark = pytest.mark.anyio


async def test_a_second_message_goes_on_with_its_session(loaded: Any, played: Any) -> None:
    agent, session = loaded(AGNO), Session("s")

    turns = [await played(agent, session, message) for message in ("hi", "again")]
    await played(agent, Session("other"), "hi")

    assert [(turn.error, turn.answer) for turn in turns] == [(None, "hello there")] * 2
    assert sessions_of() == [
        ("s", "InMemoryDb", True, {}),
        ("s", "InMemoryDb", True, {}),
        ("other", "InMemoryDb", True, {}),
    ]


async def test_the_state_of_the_session_is_that_of_agno(loaded: Any, played: Any) -> None:
    agent, session = loaded(AGNO), Session("s", state={"city": "Rome"})

    turn = await played(agent, session, "Roll a d6")

    assert sessions_of()[0][3] == {"city": "Rome"}
    assert turn.state_after == {"city": "Rome", "rolls": [6]}
