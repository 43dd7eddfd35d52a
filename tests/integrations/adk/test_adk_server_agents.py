"""Agents behind ADK's api_server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.agents.answering import Answers, answering

from evaldesk.agents import agent_ref, load_agent
from evaldesk.errors import AgentError
from evaldesk.llm import price
from evaldesk.model import Session, ToolCall, TurnRecord

pytestmark = pytest.mark.anyio


@pytest.fixture(name="answers")
def answers_fixture() -> Iterator[tuple[str, Answers]]:
    with answering() as found:
        yield found


ADK_EVENTS = [
    {"author": "weather", "partial": True, "content": {"role": "model", "parts": [{"text": "It"}]}},
    {
        "author": "weather",
        "content": {"parts": [{"functionCall": {"id": "c1", "name": "look", "args": {"city": "Rome"}}}]},
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 1},
        "modelVersion": "gemini-2.5-flash",
    },
    {
        "author": "weather",
        "content": {"parts": [{"functionResponse": {"id": "c1", "name": "look", "response": {"result": "sun"}}}]},
        "actions": {"stateDelta": {"city": "Rome", "temp:x": 1, "_adk_seen": 2}},
    },
    {
        "author": "weather",
        "content": {"parts": [{"text": "hm", "thought": True}, {"text": "It is "}, {"text": "sunny"}]},
    },
]


async def test_an_adk_server_plays_turns_in_a_session_of_its_own(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives({"id": "s-77", "appName": "weather"})
    server.gives(*ADK_EVENTS, kind="text/event-stream")
    server.gives(*ADK_EVENTS[-1:], kind="text/event-stream")
    agent = load_agent(agent_ref(f"adk:{address}/weather"))
    session = Session("s", state={"unit": "C"}, user_id="u/1", is_streaming=True)

    events = await play(agent, session, "Sun?")
    await play(agent, session, "and now?")

    kinds = [event.kind for event in events]
    assert kinds == ["agent_message", "usage", "tool_call", "tool_result", "agent_message", "log"]
    assert events[2].call == ToolCall("look", {"city": "Rome"}, "c1")
    assert (events[1].usage.tokens_in, events[1].usage.tokens_out) == (9, 3)
    assert events[1].usage.cost == price("gemini-2.5-flash", 9, 3)
    assert events[1].usage.cost is not None
    assert (events[3].result, events[4].text) == ("sun", "It is \nsunny")  # as ADK's metrics join the parts
    assert (events[5].author, events[5].text) == ("thought", "hm")
    assert session.state == {"unit": "C", "city": "Rome"}
    paths = [path for path, _, _ in server.asked]
    assert paths == ["/apps/weather/users/u%2F1/sessions", "/run_sse", "/run_sse"]
    assert server.asked[0][1] == {"state": {"unit": "C"}}
    assert server.asked[2][1] == {
        "appName": "weather",
        "userId": "u/1",
        "sessionId": "s-77",
        "newMessage": {"role": "user", "parts": [{"text": "and now?"}]},
        "streaming": True,
    }


@pytest.mark.parametrize("count", [float("nan"), -1, 2.0**60])
async def test_an_invalid_token_count_is_an_error_and_never_0_tokens(answers: Any, play: Any, count: float) -> None:
    address, server = answers
    server.gives({"id": "s-77", "appName": "weather"})
    event = {"author": "weather", "usageMetadata": {"promptTokenCount": count}}
    server.gives(event, kind="text/event-stream")
    agent = load_agent(agent_ref(f"adk:{address}/weather"))

    with pytest.raises(AgentError, match=r"prompt_?[tT]oken_?[cC]ount(: NaN is not a JSON| must be a) number"):
        await play(agent, Session("s"), "Sun?")


async def test_a_failing_adk_server_is_an_error(answers: Any, play: Any) -> None:
    address, server = answers
    agent = load_agent(agent_ref(f"adk:{address}/weather"))
    server.gives(status=404, raw=b"no such app")
    with pytest.raises(AgentError, match="answered 404: 'no such app'"):
        await play(agent, Session("s"), "hi")

    server.gives({"id": "s"})
    server.gives({"error": "model is gone"}, kind="text/event-stream")
    [event] = await play(agent, Session("s"), "hi")

    assert event.error.message == "model is gone"


async def test_a_lost_session_of_the_server_is_logged(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives({"id": "s"})
    server.gives(ADK_EVENTS[-1], kind="text/event-stream")

    events = await play(load_agent(agent_ref(f"adk:{address}/weather")), Session("s", turns=[TurnRecord("hi")]), "you?")

    assert "does not remember" in events[0].text


def test_a_spec_with_the_prefix_is_an_agent_behind_the_server() -> None:
    assert agent_ref("adk:http://127.0.0.1:8000/weather").kind == "adk_server"


def test_an_adk_address_without_an_app_is_refused() -> None:
    with pytest.raises(AgentError, match="name of the app"):
        load_agent(agent_ref("adk:http://127.0.0.1:8000"))
