"""The messages that a framework keeps of a played turn are imported as the same turns, with the real packages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agents import openai_agents_source, pydantic_ai_source
from tests.agents.installed import skip_without
from tests.transcripts.compared_turns import turns_of_case, turns_of_trial

from evaldesk.formats.files import read_file
from evaldesk.model import Session

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # the packages' own warnings

LOOKER = """
def answer(word, messages):
    return called("look", {}) if word == "go" else said("I give up")
"""
PYDANTIC_LOOKER = """
root_agent = Agent(scripted(answer))

@root_agent.tool_plain
def look() -> dict:
    return {"seen": ["a", 1, None]}
"""
OPENAI_LOOKER = """
@function_tool
def look() -> str:
    return "seen"

root_agent = Agent(name="looker", model=Scripted(answer), tools=[look])
"""


async def played(agent: Any, play: Any, *messages: str) -> Session:
    session = Session("s")
    for message in messages:
        await play(agent, session, message)
    return session


def imported(messages: Any, format_name: str) -> list[dict[str, Any]]:
    found = read_file(json.dumps(messages).encode(), "messages.json")
    assert (found.format, found.evalset is not None, found.refused) == (format_name, True, ())
    assert found.evalset is not None
    [case] = found.evalset.cases
    return turns_of_case(case)


@pytest.mark.parametrize(
    ("source", "messages"),
    [(pydantic_ai_source.ROLLER, ("Roll a d6", "hi")), (pydantic_ai_source.SCRIPT + LOOKER + PYDANTIC_LOOKER, ("go",))],
    ids=["two turns", "a result that is an object"],
)
async def test_messages_of_pydantic_ai(loaded: Any, play: Any, source: str, messages: tuple[str, ...]) -> None:
    skip_without("pydantic_ai")
    session = await played(loaded(source), play, *messages)
    kept: Any = session.memory["pydantic_ai"]
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    found = imported(json.loads(ModelMessagesTypeAdapter.dump_json(kept[1])), "pydantic-ai")

    assert found == turns_of_trial(session.turns)


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (openai_agents_source.ROLLER, ("Roll a d6", "hi")),
        (openai_agents_source.SCRIPT + LOOKER + OPENAI_LOOKER, ("go",)),
    ],
    ids=["two turns", "a result that is text"],
)
async def test_items_of_the_openai_agents_sdk(loaded: Any, play: Any, source: str, messages: tuple[str, ...]) -> None:
    skip_without("agents")
    session = await played(loaded(source), play, *messages)
    kept: Any = session.memory["openai_agents"]

    found = imported(kept[2], "openai-messages")

    expected = turns_of_trial(session.turns)
    for turn in expected:  # the SDK keeps a result as text
        turn["results"] = [
            {key: value if isinstance(value, str) else json.dumps(value) for key, value in each.items()}
            for each in turn["results"]
        ]
    assert found == expected
