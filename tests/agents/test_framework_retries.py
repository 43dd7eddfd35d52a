"""Failures that pass are tried again as often as a run asks for, and counted, whichever client asks the model."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.agents.framework_sources import GOOGLE, SOURCES, model_of, source_of

from evaldesk.agents import adapt_object
from evaldesk.model import AgentRef, Session, TurnRecord

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),  # Google's own
    pytest.mark.filterwarnings("ignore:`get_config_jsonschema` is deprecated"),  # it has no other way yet
]

OWN = [name for name in SOURCES if "own client" in name]


@pytest.fixture
def asked(endpoint: Endpoint, loaded: Any, played: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The turn of the agent that is called so, in a run that asks for so many retries."""
    for name in ("GOOGLE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "a-key-for-the-tests")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.address)

    async def asked(name: str, n_retries: int | None, faults: Any = None) -> TurnRecord:
        agent = loaded(source_of(name, endpoint.address))
        model, options = model_of(name, endpoint.address)
        session = Session("s", model=model, model_options=replace(options, n_retries=n_retries, faults=faults))
        turn: TurnRecord = await played(agent, session, "hi")
        return turn

    return asked


@pytest.mark.parametrize("name", SOURCES)
async def test_no_retries_means_one_request(name: str, endpoint: Endpoint, asked: Any) -> None:
    for _ in range(4):
        endpoint.fails(429, "slow down", retry_after_ms="1")

    turn = await asked(name, 0)

    assert (turn.error.kind, len(endpoint.asked)) == ("rate_limit", 1)
    assert "slow down" in turn.error.message
    assert "code: 429" not in turn.error.message
    assert _waits(turn) == []


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("fault", ["rate_limit", "server_error", "timeout", "truncated", "malformed"])
async def test_a_fault_that_the_run_asks_for_reaches_every_client(
    name: str, fault: str, endpoint: Endpoint, asked: Any
) -> None:
    endpoint.says("too late").says("LiteLLM asks again where a connection ends")

    turn = await asked(name, 0, ((fault, 1.0),))

    assert turn.error
    assert fault == "truncated" or endpoint.asked == []  # an answer that breaks off is one that was asked for
    told = [event.text for event in turn.events if event.text.startswith("Injected fault in request ")]
    assert told[0].startswith("Injected fault in request 1 of this turn, to ")
    if fault == "rate_limit":
        assert turn.error.kind == "rate_limit"


@pytest.mark.parametrize("name", SOURCES)
async def test_the_retries_of_the_run_are_made_counted_and_logged(name: str, endpoint: Endpoint, asked: Any) -> None:
    for _ in range(2):
        endpoint.fails(429, "slow down", retry_after_ms="1")
    _answer(endpoint, name)

    turn = await asked(name, 2)

    assert turn.answer == "hello"
    assert len(endpoint.asked) == 3
    assert [usage.n_attempts for usage in turn.usages] == [3]
    assert _waits(turn) == [("rate-limited", "attempt 2 of 3"), ("rate-limited", "attempt 3 of 3")]


@pytest.mark.parametrize("name", SOURCES)
async def test_no_key_is_sent_to_the_target_of_a_redirect(name: str, endpoint: Endpoint, asked: Any) -> None:
    with served() as elsewhere:
        endpoint.fails(307, location=f"{elsewhere.address}/chat/completions?key=hidden")
        _answer(elsewhere, name)

        turn = await asked(name, None)

    assert (len(endpoint.asked), elsewhere.headers) == (1, [])
    assert turn.error.kind == "redirect"
    assert f"a redirect to {elsewhere.address[:-3]}. Redirects are not followed" in turn.error.message


@pytest.mark.parametrize("name", OWN)
async def test_a_client_keeps_its_own_retries_without_a_run_option(name: str, endpoint: Endpoint, asked: Any) -> None:
    for _ in range(4):
        endpoint.fails(503, "busy", retry_after_ms="1")

    turn = await asked(name, None)

    assert turn.stop_reason == "error"
    assert len(endpoint.asked) == 1 + 1
    assert _waits(turn) == [("server error", "attempt 2 of 2")]


@pytest.mark.parametrize("name", OWN)
async def test_a_dropped_connection_is_retried(name: str, endpoint: Endpoint, asked: Any) -> None:
    endpoint.drops()
    _answer(endpoint, name)

    turn = await asked(name, None)

    assert turn.answer == "hello"
    assert _waits(turn) == [("connection", "attempt 2 of 2")]
    assert [usage.n_attempts for usage in turn.usages] == [2]


async def test_a_client_is_unchanged_outside_of_turns(endpoint: Endpoint) -> None:
    from openai import AsyncOpenAI

    from evaldesk.llm.third_party_clients import wrap_clients

    for _ in range(2):
        endpoint.fails(429, "slow down", retry_after_ms="1")
    endpoint.says("hello")
    wrap_clients()
    async with AsyncOpenAI(base_url=endpoint.address, api_key="k", max_retries=2) as client:
        found = await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])

    assert found.choices[0].message.content == "hello"
    assert [headers["x-stainless-retry-count"] for headers in endpoint.headers] == ["0", "1", "2"]


async def test_a_client_of_another_form_works_uncounted(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class AsyncAPIClient:
        async def request(self, question: str) -> str:
            return f"asked {question}"

    async def root_agent(message: str) -> str:
        return await AsyncAPIClient().request(message)

    module = ModuleType("groq._base_client")
    vars(module)["AsyncAPIClient"] = AsyncAPIClient
    monkeypatch.setitem(sys.modules, module.__name__, module)

    turn = await played(adapt_object(root_agent, AgentRef("a", "some:root_agent")), Session("s"), "hi")

    assert (turn.answer, hasattr(AsyncAPIClient.request, "__wrapped__")) == ("asked hi", True)


def _answer(endpoint: Endpoint, name: str) -> None:
    if SOURCES[name] is not GOOGLE:
        endpoint.says("hello")
        return
    content = {"role": "model", "parts": [{"text": "hello"}]}
    spent = {"promptTokenCount": 11, "candidatesTokenCount": 5}
    endpoint.gives(json.dumps({"candidates": [{"content": content}], "usageMetadata": spent}).encode())


def _waits(turn: TurnRecord) -> list[tuple[str, str]]:
    """Why, and for which attempt, of each pause that the turn tells of."""
    found = [event.text for event in turn.events if event.kind == "log" and event.author == "evaldesk"]
    return [(text.partition(" until ")[0], text.partition(", then ")[2].partition(": ")[0]) for text in found]
