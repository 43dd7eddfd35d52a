"""LlmAgent against an OpenAI-compatible endpoint on loopback."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from evaldesk import LlmAgent
from evaldesk.errors import ModelError, UsageError
from evaldesk.model import AgentRef, Session

pytestmark = pytest.mark.anyio


def add(a: int, b: int, state: dict[str, Any]) -> int:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    state["sum"] = a + b
    return a + b


async def look_up(word: str) -> dict[str, str]:
    """Look a word up."""
    return {"word": word}


def explode() -> None:
    """Never works."""
    raise RuntimeError("boom")


def _agent(endpoint: Any, **fields: Any) -> Any:
    tools = [add, look_up, explode]
    given = {"name": "adder", "model": "hosted_vllm/small", "tools": tools, "api_base": endpoint.address, **fields}
    return LlmAgent(**given)


async def test_a_tool_call_is_run_and_its_result_goes_back_to_the_model(endpoint: Any, play: Any, results: Any) -> None:
    endpoint.says("let me see", ("c1", "add", '{"a": 2, "b": 3}')).says("it is 5")
    session = Session("s")

    events = await play(_agent(endpoint, instruction="Add."), session, "2 and 3?")

    kinds = [event.kind for event in events]
    assert kinds == ["usage", "agent_message", "tool_call", "tool_result", "usage", "agent_message"]
    assert results(events) == [("add", {"a": 2, "b": 3}, 5, False)]
    assert (session.turns[0].answer, session.turns[0].intermediate) == ("it is 5", (("adder", "let me see"),))
    assert session.state == {"sum": 5}
    assert endpoint.asked[1]["messages"] == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "2 and 3?"},
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    ]


async def test_several_calls_in_one_reply_run_in_order(endpoint: Any, play: Any, results: Any) -> None:
    calls = [("c1", "look_up", '{"word": "a"}'), ("c2", "add", '{"a": 1, "b": 1}')]
    endpoint.says("", *calls).says("done")

    events = await play(_agent(endpoint), Session("s"), "go")

    assert [result for _, _, result, _ in results(events)] == [{"word": "a"}, 2]
    assert [message["content"] for message in endpoint.asked[1]["messages"][2:]] == ['{"word": "a"}', "2"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("explode", "{}", "RuntimeError: boom"),
        ("add", '{"a": 2}', "add: b is missing; wanted (a, b)"),
        ("add", '{"a": 2, "b": 3, "c": 4}', "add: there is no parameter c; wanted (a, b)"),
        ("add", '{"a": "two", "b": 3}', "add: a: Expected `int`, got `str`"),
        ("add", '{"a": 2', 'add: the arguments are not a JSON object: {"a": 2'),
        ("add", "[2, 3]", "add: the arguments are not a JSON object: [2, 3]"),
        ("divide", "{}", "there is no tool divide; there are: add, look_up, explode"),
    ],
    ids=["raises", "missing", "unknown", "wrong-type", "broken-json", "list", "no-tool"],
)
async def test_the_error_of_a_tool_goes_to_the_model(
    endpoint: Any, play: Any, results: Any, name: str, arguments: str, said: str
) -> None:
    endpoint.says("", ("c1", name, arguments)).says("sorry")

    events = await play(_agent(endpoint), Session("s"), "go")

    [(_, _, result, is_error)] = results(events)
    assert (result, is_error) == (said, True)
    raw = [event.call.extra for event in events if event.kind == "tool_call"]
    assert raw == [{"raw_args": arguments} if "not a JSON object" in said else {}]
    assert endpoint.asked[1]["messages"][-1]["content"] == said


async def test_the_trace_of_a_tool_that_raises_is_logged(endpoint: Any, play: Any) -> None:
    endpoint.says("", ("c1", "explode", "{}")).says("sorry")

    events = await play(_agent(endpoint), Session("s"), "go")

    [log] = [event.text for event in events if event.kind == "log"]
    assert "in explode" in log
    assert "agents/tools/functions.py" not in log


async def test_the_conversation_so_far_is_sent_to_the_model(endpoint: Any, play: Any) -> None:
    endpoint.says("", ("c1", "add", '{"a": 1, "b": 2}')).says("3").says("yes")
    agent, session = _agent(endpoint), Session("s")

    await play(agent, session, "1 and 2?")
    await play(agent, session, "sure?")

    shown = [(message["role"], message.get("content")) for message in endpoint.asked[2]["messages"]]
    assert shown == [("user", "1 and 2?"), ("assistant", None), ("tool", "3"), ("assistant", "3"), ("user", "sure?")]


async def test_placeholders_are_replaced_for_each_call(endpoint: Any, play: Any) -> None:
    endpoint.says("", ("c1", "add", '{"a": 1, "b": 2}')).says("3")

    await play(_agent(endpoint, instruction="Sum {sum?}."), Session("s"), "1 and 2?")

    assert [asked["messages"][0]["content"] for asked in endpoint.asked] == ["Sum .", "Sum 3."]


async def test_a_missing_key_of_the_state_is_named(endpoint: Any, play: Any) -> None:
    [event] = await play(_agent(endpoint, instruction="From {origin}."), Session("s"), "go")

    assert event.error.kind == "missing_state"
    assert "{origin}, but the session state has no 'origin'" in event.error.message
    assert endpoint.asked == []


async def test_a_turn_at_its_iteration_limit_is_stopped(endpoint: Any, play: Any) -> None:
    for _ in range(2):
        endpoint.says("", ("c1", "add", '{"a": 1, "b": 2}'))

    events = await play(_agent(endpoint, max_iterations=2), Session("s"), "go")

    assert events[-1].error.kind == "max_iterations"
    assert "2 model calls" in events[-1].error.message


async def test_an_empty_answer_is_a_log_and_no_message(endpoint: Any, play: Any) -> None:
    endpoint.says("")

    events = await play(_agent(endpoint), Session("s"), "go")

    assert [event.kind for event in events] == ["usage", "log"]


async def test_a_failed_model_call_is_raised(endpoint: Any, play: Any) -> None:
    endpoint.fails(401)

    with pytest.raises(ModelError, match="no valid key"):
        await play(_agent(endpoint), Session("s"), "go")


async def test_the_sessions_model_and_seed_win_and_the_agents_address_is_not_used_for_it(
    endpoint: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", endpoint.address)
    endpoint.says("hi")
    agent = replace(_agent(endpoint), api_base="http://127.0.0.1:9/v1")

    await play(agent, Session("s", model="hosted_vllm/large", seed=5), "go")

    assert (endpoint.asked[0]["model"], endpoint.asked[0]["seed"]) == ("large", 5)


async def test_a_streaming_session_sees_the_text_as_it_comes(play: Any) -> None:
    agent = LlmAgent(name="words", model="demo/dice", tools=[])

    events = await play(agent, Session("s", is_streaming=True), "hi")

    pieces = [event.text for event in events if event.is_partial]
    whole = [event.text for event in events if event.kind == "agent_message" and not event.is_partial]
    assert len(pieces) > 5
    assert ["".join(pieces)] == whole


def test_the_description_has_name_and_kind() -> None:
    described = LlmAgent(name="a", model="openai/x", instruction="Do.", tools=[add], initial_state={"n": 1}).describe()

    assert (described.name, described.kind, described.model, described.is_demo) == ("a", "litellm", "openai/x", False)
    assert (described.instruction, described.initial_state) == ("Do.", {"n": 1})
    assert json.loads(json.dumps(described.tools[0].parameters)) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first one."},
            "b": {"type": "integer", "description": "The second one."},
        },
        "required": ["a", "b"],
    }


def test_a_demo_model_is_marked_in_the_description() -> None:
    described = LlmAgent(name="a", model="demo/dice").describe()

    assert (described.model, described.is_demo) == ("demo/dice (scripted demo model)", True)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tools": [add, add]}, "two tools are called add"),
        ({"tools": [3]}, "a tool must be a function, got 3"),
        ({"max_iterations": 0}, "max_iterations must be at least 1"),
    ],
)
def test_a_wrong_agent_is_refused_when_it_is_made(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        LlmAgent(name="a", model="demo/dice", **fields)


def test_only_our_own_kind_is_adapted() -> None:
    from evaldesk.agents.own.litellm import adapt

    assert adapt(add, AgentRef("a", "a:a")) is None
