"""Reasoning models and models that refuse a parameter: it is asked by another name, or left out and said so."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.agents.answering import answering
from tests.agents.endpoint import Answer, Endpoint

from evaldesk.llm import ModelCall, RetryPolicy, complete, model_error
from evaldesk.llm.refusals import STRICTNESS
from evaldesk.model import ModelOptions, Session

pytestmark = pytest.mark.anyio

AGENT = """
from evaldesk import LlmAgent
root_agent = LlmAgent(name="small", model="small", api_base="{address}/v1", temperature=0.7, max_tokens=9{more})
"""
OPENAIS = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    "temperature": "Unsupported value: 'temperature' does not support 0.7 with this model. "
    "Only the default (1) value is supported.",
    "reasoning_effort": "Unrecognized request argument supplied: reasoning_effort",
}


def answer(text: str = "hello", reason: str = "stop") -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}


def refusal(name: str) -> dict[str, Any]:
    return {"error": {"message": OPENAIS[name], "type": "invalid_request_error", "param": name}}


@pytest.fixture(autouse=True)
def _nothing_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STRICTNESS, "_refused_fields", {})


async def test_a_refused_token_limit_is_sent_by_its_other_name(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(refusal("max_tokens"), status=400)
        server.gives(answer())
        server.gives(answer())
        agent = loaded(AGENT.format(address=address, more=""))

        first = await played(agent, Session("s"), "hi")
        second = await played(agent, Session("s"), "hi")

    bodies = [body for _, body, _ in server.asked]
    assert [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in bodies] == [
        (9, None),
        (None, 9),
        (None, 9),
    ]
    assert (first.answer, second.answer) == ("hello", "hello")
    assert not [event for event in first.events if event.kind == "log"]


@pytest.mark.parametrize("name", ["temperature", "reasoning_effort"])
async def test_a_refused_parameter_is_dropped_and_logged_once(loaded: Any, played: Any, name: str) -> None:
    with answering() as (address, server):
        server.gives(refusal(name), status=400)
        server.gives(answer())
        server.gives(answer())
        agent = loaded(AGENT.format(address=address, more=""))
        options = ModelOptions(reasoning_effort="low")

        first = await played(agent, Session("s", model_options=options), "hi")
        second = await played(agent, Session("s", model_options=options), "hi")

    assert [name in body for _, body, _ in server.asked] == [True, False, False]
    logs = [[event.text for event in turn.events if event.kind == "log"] for turn in (first, second)]
    assert logs == [[f"small refuses {name}: from now on it is asked without"], []]


async def test_a_wrong_value_is_no_refusal_of_its_parameter(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        wrong = {"error": {"message": "temperature must be between 0 and 0.5", "param": "temperature"}}
        server.gives(wrong, status=400)
        agent = loaded(AGENT.format(address=address, more=""))

        turn = await played(agent, Session("s"), "hi")

    assert turn.error
    assert "must be between 0 and 0.5" in turn.error.message
    assert len(server.asked) == 1


async def test_an_endpoint_that_refuses_every_field_gets_a_few_requests() -> None:
    call = ModelCall(
        "small", [{"role": "user", "content": "hi"}], temperature=0.7, max_tokens=9, reasoning_effort="low"
    )
    text = "max_tokens, max_completion_tokens, temperature, reasoning_effort, seed: unknown"
    with answering() as (address, server):
        for _ in range(8):
            server.gives({"error": {"message": text}}, status=400)
        with pytest.raises(Exception, match="unknown"):
            await complete(replace(call, api_base=f"{address}/v1"), retry_policy=RetryPolicy(n_attempts=1))

    assert len(server.asked) == 3


async def test_the_effort_of_a_run_reaches_the_model(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(answer())
        agent = loaded(AGENT.format(address=address, more=""))

        await played(agent, Session("s", model_options=ModelOptions(reasoning_effort="high")), "hi")

    assert server.asked[0][1]["reasoning_effort"] == "high"


async def test_an_answer_that_was_cut_is_marked(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(answer("hel", "length"))
        server.gives(answer())
        agent = loaded(AGENT.format(address=address, more=""))

        cut = await played(agent, Session("s"), "hi")
        whole = await played(agent, Session("s"), "hi")

    assert (cut.answer, cut.is_cut, whole.is_cut) == ("hel", True, False)


FRAMEWORK = """
from openai import OpenAI
def root_agent(message):
    client = OpenAI(base_url="{address}/v1", api_key="k", max_retries=0)
    found = client.chat.completions.create(model="small", messages=[{{"role": "user", "content": message}}])
    return found.choices[0].message.content
"""


async def test_a_cut_answer_of_a_client_of_the_agents_own_is_marked(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(
            {"id": "x", "object": "chat.completion", "created": 0, "model": "small", **answer("hel", "length")}
        )
        agent = loaded(FRAMEWORK.format(address=address))

        turn = await played(agent, Session("s"), "hi")

    assert (turn.error, turn.answer, turn.is_cut) == (None, "hel", True)


async def test_a_text_about_a_length_limit_is_not_truncated(loaded: Any, played: Any) -> None:
    said = json.dumps({"finish_reason": "length"})
    with answering() as (address, server):
        server.gives({"id": "x", "object": "chat.completion", "created": 0, "model": "small", **answer(said)})
        agent = loaded(FRAMEWORK.format(address=address))

        turn = await played(agent, Session("s"), "hi")

    assert (turn.answer, turn.is_cut) == (said, False)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [(401, "authentication", "no valid key"), (403, "permission", "the key is valid but may not use this model")],
)
async def test_permission_and_authentication_errors_are_distinguished(
    loaded: Any, played: Any, status: int, kind: str, words: str
) -> None:
    with answering() as (address, server):
        server.gives({"error": {"message": "no"}}, status=status)
        agent = loaded(AGENT.format(address=address, more=""))

        turn = await played(agent, Session("s"), "hi")

    assert turn.error
    assert turn.error.kind == kind
    assert words in turn.error.message
    assert ("set " in turn.error.message) == (status == 401)


def test_permission_and_authentication_errors_of_an_own_client_are_distinguished() -> None:
    import httpx
    import openai

    response = httpx.Response(403, request=httpx.Request("POST", "http://127.0.0.1/v1"))
    error = openai.PermissionDeniedError("no", response=response, body=None)

    found = model_error(error, "openai/gpt")

    assert found
    assert (found.kind, found.is_fatal) == ("permission", True)


async def test_a_key_in_the_code_is_no_missing_key_and_stays_out_of_the_body(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(answer())
        agent = loaded(AGENT.format(address=address, more=', extra={"api_key": "inline-key", "top_k": 3}'))

        await played(agent, Session("s"), "hi")

    body, headers = server.asked[0][1], server.asked[0][2]
    assert headers["authorization"] == "Bearer inline-key"
    assert ("api_key" in body, body["top_k"]) == (False, 3)


def test_a_provider_agent_with_a_key_in_the_code_has_no_missing_key(loaded: Any) -> None:
    source = 'from evaldesk import LlmAgent\nroot_agent = LlmAgent(name="a", model="openai/gpt-4o-mini"{more})\n'

    without, with_key = (
        loaded(source.format(more=more)).describe() for more in ("", ', extra={"api_key": "inline-key"}')
    )

    assert (without.missing, with_key.missing) == (("OPENAI_API_KEY",), ())


WARM = FRAMEWORK.replace('model="small",', 'model="small", temperature=0.7, max_tokens=9,')
SDK_ANSWER = {"id": "x", "object": "chat.completion", "created": 0, "model": "small", **answer()}


async def test_a_refused_field_of_the_run_is_dropped_for_an_own_client(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(refusal("temperature"), status=400)
        server.gives(refusal("max_tokens"), status=400)
        server.gives(SDK_ANSWER)
        server.gives(SDK_ANSWER)
        agent = loaded(WARM.format(address=address))
        options = ModelOptions(temperature=0.7, max_tokens=9)

        first = await played(agent, Session("s", model_options=options), "hi")
        second = await played(agent, Session("s", model_options=options), "hi")

    bodies = [body for _, body, _ in server.asked]
    assert ["temperature" in body for body in bodies] == [True, False, False, False]
    assert [body.get("max_completion_tokens") for body in bodies] == [None, None, 9, 9]
    assert (first.answer, second.answer) == ("hello", "hello")
    logs = [event.text for event in first.events if event.kind == "log"]
    assert logs == ["small refuses temperature: from now on it is asked without"]


async def test_a_refused_field_in_the_agents_code_fails_as_in_production(loaded: Any, played: Any) -> None:
    with answering() as (address, server):
        server.gives(refusal("temperature"), status=400)
        agent = loaded(WARM.format(address=address))

        turn = await played(agent, Session("s"), "hi")

    assert turn.error
    assert "temperature" in turn.error.message
    assert len(server.asked) == 1


BESIDE = """
from openai import AsyncOpenAI

async def root_agent(message):
    client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=0)
    asked = [{{"role": "user", "content": message}}]
    found = await client.chat.completions.create(model="small", messages=asked, max_tokens=9)
    return found.choices[0].message.content
"""


@pytest.mark.parametrize("source", [AGENT.replace("/v1", ""), BESIDE], ids=["ours", "a client of the agent's own"])
async def test_a_call_is_retried_when_a_concurrent_call_learned_the_refusal(
    loaded: Any, played: Any, endpoint: Endpoint, source: str
) -> None:
    held = threading.Event()
    endpoint.answers.append(Answer(refusal("max_tokens"), 400, held=held))
    endpoint.says("hello")
    agent = loaded(source.format(address=endpoint.address, more=""))
    session = Session("s", model_options=ModelOptions(max_tokens=9))

    under_way = asyncio.ensure_future(played(agent, session, "hi"))
    while not endpoint.asked:
        await asyncio.sleep(0.01)
    for address in (endpoint.address, f"{endpoint.address}/chat/completions"):
        STRICTNESS.learn("small", address, frozenset({"max_tokens"}), 400, OPENAIS["max_tokens"])
    held.set()
    turn = await under_way

    assert (turn.error, turn.answer) == (None, "hello")
    assert [body.get("max_completion_tokens") for body in endpoint.asked] == [None, 9]
