"""An OpenAI-compatible chat endpoint that is an agent."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.agents import agent_ref, load_agent
from evaldesk.agents.discovery import remote_ref_of_kind
from evaldesk.errors import ModelError
from evaldesk.model import ModelOptions, Session

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("client")]


async def test_a_chat_endpoint_is_sent_the_conversation(endpoint: Any, play: Any) -> None:
    agent = load_agent(
        remote_ref_of_kind("http_chat", endpoint.address, "mine", '{"model": "bot", "instruction": "Be kind."}')
    )
    session = Session("s")
    endpoint.says("hello").says("bye")

    await play(agent, session, "hi")
    events = await play(agent, session, "ciao")

    assert [event.kind for event in events] == ["usage", "agent_message"]
    asked = endpoint.asked[-1]
    assert asked["model"] == "bot"
    assert [message["content"] for message in asked["messages"]] == ["Be kind.", "hi", "hello", "ciao"]
    assert agent.describe().model == "bot"


async def test_a_chat_endpoint_streams_and_takes_the_model_of_the_run(endpoint: Any, play: Any) -> None:
    agent = load_agent(agent_ref(f"chat:{endpoint.address}"))
    endpoint.streams("he", "llo")

    events = await play(agent, Session("s", model="large", is_streaming=True), "hi")

    assert [(event.text, event.is_partial) for event in events if event.kind == "agent_message"] == [
        ("he", True),
        ("llo", True),
        ("hello", False),
    ]
    assert endpoint.asked[0]["model"] == "large"


async def test_a_chat_endpoint_that_fails_or_requests_tools_is_an_error(endpoint: Any, play: Any) -> None:
    agent = load_agent(agent_ref(endpoint.address))
    session = Session("s", model_options=ModelOptions(n_retries=0))
    endpoint.fails(500).says("", ("c1", "roll", "{}"))

    with pytest.raises(ModelError):
        await play(agent, session, "hi")
    events = await play(agent, session, "hi")

    assert events[-1].error.kind == "wants_tools"
