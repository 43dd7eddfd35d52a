"""How each model was asked is kept for every way in which its calls are seen: it is what the endpoint was asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, chunks
from tests.agents.installed import skip_without
from tests.agents.test_model_gateway import (
    ANTHROPIC_REQUESTS,
    ANTHROPIC_STREAM,
    APIS,
    Play,
    play_calls,
)
from tests.agents.test_spans import PLAIN
from tests.agents.test_uncounted import NESTED, THREAD, WHOLE
from tests.engine.simulated import SCENARIO, Echo, spec

from evaldesk.agents.agent import Agent
from evaldesk.desk.runs.driver import trial_spec
from evaldesk.engine import play_trial
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn
from evaldesk.llm.apis import api_of
from evaldesk.model import AgentRef, Case, ModelOptions, Prompts, RunConfig, Session, TurnRecord
from evaldesk.model.options import UserConfig
from evaldesk.pages.spans import spans_of
from evaldesk.transcripts.model_exchanges import read_request
from evaldesk.transcripts.prompt_writer import PromptWriter

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

__all__ = ["play_calls"]


OURS_ALONE = """
from evaldesk import LlmAgent
root_agent = LlmAgent(name="a", model="small", api_base="{address}")
"""


async def asked(agent: Agent, message: str = "hi") -> tuple[TurnRecord, Prompts]:
    attempt = Attempt(prompts=PromptWriter())
    turn = await play_turn(agent, Session("s"), message, attempt=attempt)
    assert attempt.prompts
    found = attempt.prompts.prompts()
    assert found
    return turn, found


def in_time(prompts: Prompts) -> list[int]:
    return sorted(range(len(prompts.calls)), key=lambda at: prompts.calls[at].at_ms)


def sent(prompts: Prompts) -> list[Any]:
    return [[*prompts.messages(at)] for at in in_time(prompts)]


@pytest.mark.parametrize("name", NESTED)
async def test_model_requests_of_every_framework_are_stored_verbatim(
    name: str, endpoint: Endpoint, loaded: Any
) -> None:
    package, source, argument = NESTED[name]
    skip_without(package)
    endpoint.says("", ("c1", "ask", json.dumps({argument: "what?"}))).says("42").says("it is 42")

    turn, prompts = await asked(loaded(source.replace("{address}", endpoint.address)))

    assert turn.error is None
    assert sent(prompts) == [body["messages"] for body in endpoint.asked]
    calls = [prompts.calls[at] for at in in_time(prompts)]
    assert [prompts.part(call.tools) for call in calls] == [body.get("tools") for body in endpoint.asked]
    answers: list[Any] = [prompts.part(call.answer) for call in calls]
    assert [answer["content"] or answer["tool_calls"][0]["function"]["name"] for answer in answers] == [
        "ask",
        "42",
        "it is 42",
    ]


@pytest.mark.parametrize("source", [WHOLE, THREAD], ids=["a client", "a thread of the agent"])
async def test_requests_of_a_functions_client_are_stored_with_their_duration(
    source: str, endpoint: Endpoint, loaded: Any
) -> None:
    endpoint.says("hello")

    turn, prompts = await asked(loaded(source.replace("{address}", endpoint.address)))

    [call] = prompts.calls
    assert sent(prompts) == [[{"role": "user", "content": "hi"}]]
    assert (call.turn, call.model, call.tokens_in, call.tokens_out) == (0, "small", 11, 5)
    assert 0 < call.duration_ms <= call.at_ms <= turn.duration_ms


@pytest.mark.parametrize("name", APIS)
async def test_the_gateway_stores_calls_of_every_api(name: str, play_calls: Play, endpoint: Endpoint) -> None:
    requests, given, _ = APIS[name]
    endpoint.answers += given

    played = await play_calls(requests)

    assert played.prompts
    assert sent(played.prompts) == [[*read_request(request["body"]).messages] for request in requests]
    assert all(api_of(request["path"]) for request in requests)
    first = json.dumps(played.prompts.part(played.prompts.calls[0].answer))
    assert "roll" in first
    assert "sides" in first


async def test_a_streamed_answer_is_merged(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.answers += [Answer(stream=ANTHROPIC_STREAM), Answer(stream=chunks({"content": "a "}, {"content": "four"}))]
    chat = {
        "variable": "OPENAI_BASE_URL",
        "path": "/chat/completions",
        "body": {"model": "m", "messages": [], "stream": True},
    }

    played = await play_calls([ANTHROPIC_REQUESTS[0], chat])

    assert played.prompts
    said: list[Any] = [played.prompts.part(call.answer) for call in played.prompts.calls]
    assert [block.get("text") or block["input"] for block in said[0]["content"]] == ["I roll.", {"sides": 6}]
    assert said[1]["content"] == "a four"


async def test_prompts_come_from_spans_without_an_observed_request(loaded: Any) -> None:
    skip_without("opentelemetry.sdk")

    _, prompts = await asked(loaded(PLAIN), "Roll.")

    assert [(call.tokens_in, call.tokens_out) for call in prompts.calls] == [(11, 5), (20, 7)]
    assert [len(messages) for messages in sent(prompts)] == [1, 3]
    assert "A four." in json.dumps(prompts.part(prompts.calls[1].answer))


async def test_a_call_in_spans_and_requests_is_stored_once(endpoint: Endpoint, loaded: Any) -> None:
    skip_without("opentelemetry.sdk")
    endpoint.says("hello")
    both = WHOLE.replace("{address}", endpoint.address).replace("async def root_agent", "async def ask")
    source = f"{PLAIN.replace('def root_agent', 'def spanned')}\n{both}\n"
    source += "\nasync def root_agent(message):\n    spanned(message)\n    return await ask(message)\n"

    _, prompts = await asked(loaded(source))

    assert sent(prompts) == [[{"role": "user", "content": "hi"}]]


async def test_a_turn_without_prompt_storage_stores_none(endpoint: Endpoint, loaded: Any) -> None:
    endpoint.says("hello")
    attempt = Attempt()

    await play_turn(loaded(WHOLE.replace("{address}", endpoint.address)), Session("s"), "hi", attempt=attempt)

    assert attempt.prompts is None


@pytest.mark.parametrize("source", [WHOLE, OURS_ALONE], ids=["a client", "a call of ours"])
async def test_a_failed_call_is_stored_with_its_reason(source: str, endpoint: Endpoint, loaded: Any) -> None:
    endpoint.fails(400, "no such field")

    turn, prompts = await asked(loaded(source.replace("{address}", endpoint.address)))

    assert turn.error
    assert sent(prompts) == [[{"role": "user", "content": "hi"}]]
    assert prompts.is_failed(0)
    assert "400" in str(prompts.part(prompts.calls[0].answer)) or "no such field" in str(prompts.parts)


async def test_each_attempt_of_a_retried_client_is_stored(endpoint: Endpoint, loaded: Any) -> None:
    endpoint.fails(429, "slow down", retry_after="0.01").says("hello")

    turn, prompts = await asked(loaded(WHOLE.replace("{address}", endpoint.address)))

    assert turn.answer == "hello"
    assert [prompts.is_failed(at) for at in in_time(prompts)] == [True, False]
    assert len(prompts.parts) == 4


async def test_the_gateway_stores_a_refused_call(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.fails(401, "wrong key")

    played = await play_calls(ANTHROPIC_REQUESTS[:1])

    assert played.prompts
    assert played.prompts.is_failed(0)
    assert "wrong key" in str(played.prompts.part(played.prompts.calls[0].answer))


async def test_the_prompt_of_a_simulated_user_is_stored_with_its_turn(endpoint: Endpoint) -> None:
    endpoint.says("To Rome.").says("</finished>")
    user = UserConfig("small", options=ModelOptions(base_url=endpoint.address))

    result = await play_trial(Echo(), spec(SCENARIO, user=user))

    assert result.prompts
    assert [call.role for call in result.prompts.calls] == ["user", "user"]
    assert sent(result.prompts) == [body["messages"] for body in endpoint.asked]
    spans = [span for turn in spans_of(result.transcript, result.prompts) for _, span in turn.walk()]
    assert sorted(span.prompt for span in spans if span.kind == "user") == [0, 1]
    assert "not counted" not in [span.note for span in spans]


async def test_without_prompt_storage_the_users_prompts_are_not_stored(endpoint: Endpoint) -> None:
    endpoint.says("To Rome.").says("</finished>")
    user = UserConfig("small", options=ModelOptions(base_url=endpoint.address))
    config = RunConfig(AgentRef("a", "a"), "s", user=user, prompts="off")
    case = Case("c", scenario=SCENARIO)

    result = await play_trial(Echo(), trial_spec(config, 1, case, 0, 0))

    assert (result.prompts, len(endpoint.asked)) == (None, 2)
    assert trial_spec(replace(config, prompts="keep"), 1, case, 0, 0).keeps_prompts
