"""Agents of the Claude Agent SDK: each message resumes the session of the SDK."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.framework_objects import CLAUDE, sessions_of

from evaldesk.model import Session

pytestmark = pytest.mark.anyio


async def test_a_second_message_goes_on_with_its_session(loaded: Any, played: Any) -> None:
    agent, session = loaded(CLAUDE), Session("s")

    turns = [await played(agent, session, message) for message in ("hi", "again")]
    await played(agent, Session("other"), "hi")

    assert [(turn.error, turn.answer) for turn in turns] == [(None, "hello there")] * 2
    assert sessions_of() == [None, "own", None]


async def test_an_end_with_an_error_is_an_error(loaded: Any, played: Any) -> None:
    turn = await played(loaded(CLAUDE), Session("s"), "fail")

    assert "error_max_turns" in str(turn.error)
