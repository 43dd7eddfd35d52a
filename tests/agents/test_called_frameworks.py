"""Frameworks without hooks of ours: the session is kept, and what they tell beside their requests is seen."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.agents.framework_objects import SOURCES
from tests.agents.test_wire_calls import story

from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, JsonValue, Limits, Session, TrialResult, TrialSpec, Turn
from evaldesk.model.evalset import DECISIONS

pytestmark = pytest.mark.anyio

KEPT: dict[str, list[Any]] = {
    "agent_framework": [["hi"], ["hi", "again"]],
    "agno": [("s", "InMemoryDb", True, {}), ("s", "InMemoryDb", True, {"known": 1})],
    "claude_agent": [None, "own"],
    "crewai": [["hi"], ["hi", "hello there", "again"]],
    "smolagents": [["hi"], ["hi", "again"]],
}


def asked() -> list[Any]:
    """The sessions that the objects of the agent's module got."""
    found: list[Any] = sys.modules["some_agent.agent"].asked
    return found


@pytest.mark.parametrize("kind", SOURCES)
async def test_a_second_message_goes_on_with_the_session(kind: str, loaded: Any, played: Any) -> None:
    agent, session = loaded(SOURCES[kind]), Session("s")

    first = await played(agent, session, "hi")
    if kind == "agno":
        session.state["known"] = 1
    second = await played(agent, session, "again")
    await played(agent, Session("other"), "hi")

    assert (first.error, first.answer, second.error) == (None, "hello there", None)
    assert asked()[:2] == KEPT[kind]
    assert asked()[2] == (("other", *KEPT[kind][0][1:]) if kind == "agno" else KEPT[kind][0])


async def test_a_crew_gets_the_message_and_the_state_as_inputs(loaded: Any, played: Any) -> None:
    agent = loaded(SOURCES["crewai"] + "\nroot_agent = Crew()\n")

    turn = await played(agent, Session("s", state={"city": "Rome"}), "hi")

    assert turn.answer == "hello there"
    assert asked() == [{"city": "Rome", "message": "hi"}]


async def test_an_end_with_an_error_is_an_error(loaded: Any, played: Any) -> None:
    turn = await played(loaded(SOURCES["claude_agent"]), Session("s"), "fail")

    assert "error_max_turns" in str(turn.error)


async def test_steps_calls_and_results_of_smolagents_are_told(loaded: Any, played: Any) -> None:
    turn = await played(loaded(SOURCES["smolagents"]), Session("s"), "by call")

    assert story(turn) == [("roll_die", {"sides": 6}), 6, "got 6"]
    assert [event.text for event in turn.events if event.author == "smolagents"] == ["Step 1: roll_die"]


async def by_code(loaded: Any, message: str, **extra: JsonValue) -> TrialResult:
    agent = loaded(SOURCES["smolagents"] + "\nroot_agent = CodeAgent()\n")
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
