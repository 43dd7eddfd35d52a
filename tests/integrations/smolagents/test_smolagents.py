"""Agents of smolagents: a memory for each session, steps, calls of code."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.framework_objects import SMOLAGENTS, sessions_of
from tests.agents.test_wire_calls import story

from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, JsonValue, Limits, Session, TrialResult, TrialSpec, Turn
from evaldesk.model.evalset import DECISIONS

pytestmark = pytest.mark.anyio


async def test_a_second_message_goes_on_with_its_session(loaded: Any, played: Any) -> None:
    agent, session = loaded(SMOLAGENTS), Session("s")

    turns = [await played(agent, session, message) for message in ("hi", "again")]
    await played(agent, Session("other"), "hi")

    assert [(turn.error, turn.answer) for turn in turns] == [(None, "hello there")] * 2
    assert sessions_of() == [["hi"], ["hi", "again"], ["hi"]]


async def test_steps_calls_and_results_of_smolagents_are_told(loaded: Any, played: Any) -> None:
    turn = await played(loaded(SMOLAGENTS), Session("s"), "by call")

    assert story(turn) == [("roll_die", {"sides": 6}), 6, "got 6"]
    assert [event.text for event in turn.events if event.author == "smolagents"] == ["Step 1: roll_die"]


async def by_code(loaded: Any, message: str, **extra: JsonValue) -> TrialResult:
    agent = loaded(SMOLAGENTS + "\nroot_agent = CodeAgent()\n")
    case = Case("c", (Turn(message),), extra=extra)
    ref = AgentRef("a", "some_agent.agent:root_agent")
    return await play_trial(agent, TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))


@pytest.mark.parametrize(
    ("message", "extra", "wanted"),
    [
        ("by code 6", {}, [("roll_die", {"sides": 6}), 6, "got 6"]),
        ("by code 0", {}, [("roll_die", {"sides": 0}), "no sides", "failed: no sides"]),
        (
            "by code 6",
            {"tool_doubles": {"tools": {"roll_die": [{"result": 4}]}}},
            [("roll_die", {"sides": 6}), 4, "got 4"],
        ),
        (
            "by code 6",
            {DECISIONS: [{"tool": "roll_die", "decision": "deny", "reason": "Not today"}]},
            [("roll_die", {"sides": 6}), "Not today", "failed: Not today"],
        ),
    ],
    ids=["a call", "a call that fails", "a double", "a denial"],
)
async def test_tools_that_code_calls_are_seen_and_have_doubles(
    message: str, extra: Any, wanted: list[Any], loaded: Any
) -> None:
    result = await by_code(loaded, message, **extra)

    assert result.error is None
    assert story(result.transcript.turns[0]) == wanted
