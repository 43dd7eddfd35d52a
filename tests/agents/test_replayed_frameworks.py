"""A replay asks no model, whichever framework, client or library the agent uses: the endpoint counts its requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.framework_sources import GOOGLE, SOURCES, model_of, source_of
from tests.agents.installed import skip_without

from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, TrialResult, TrialSpec, Turn
from evaldesk.model.options import Recording

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

STREAMED = """
from openai import AsyncOpenAI

async def root_agent(message):
    async with AsyncOpenAI(base_url="{address}", api_key="k") as client:
        question = [{"role": "user", "content": message}]
        stream = await client.chat.completions.create(model="small", messages=question, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
"""
GENAI = """
from google.genai import Client
from google.genai.types import HttpOptions

async def root_agent(message):
    client = Client(api_key="k", http_options=HttpOptions(base_url="{base}"))
    found = await client.aio.models.generate_content(model="gemini-2.0-flash", contents=message)
    return found.text
"""
HTTPX = """
import httpx

def root_agent(message):
    question = {"model": "small", "messages": [{"role": "user", "content": message}]}
    found = httpx.post("{address}/chat/completions", json=question).json()
    return found["choices"][0]["message"]["content"]
"""
RECORDED = {**SOURCES, "a stream": STREAMED, "Google's client": GENAI, "httpx": HTTPX}

URLLIB = """
import json
from urllib.request import Request, urlopen

def root_agent(message):
    question = json.dumps({"model": "small", "messages": [{"role": "user", "content": message}]}).encode()
    with urlopen(Request("{address}/chat/completions", question, {"content-type": "application/json"})) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
"""
AIOHTTP = """
import aiohttp

async def root_agent(message):
    question = {"model": "small", "messages": [{"role": "user", "content": message}]}
    async with aiohttp.ClientSession() as session, session.post("{address}/chat/completions", json=question) as answer:
        return (await answer.json())["choices"][0]["message"]["content"]
"""
THREAD = """
import threading
from openai import OpenAI

def root_agent(message):
    said = []

    def ask():
        client = OpenAI(base_url="{address}", api_key="k", max_retries=0)
        try:
            found = client.chat.completions.create(model="small", messages=[{"role": "user", "content": message}])
            said.append(found.choices[0].message.content)
        except Exception as error:
            said.append(f"{error!r} {error.__cause__}")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return said[0]
"""
CAREFUL = HTTPX.replace("    found =", "    try:\n        found =").replace(
    '    return found["choices"]', '    except Exception:\n        return "no answer"\n    return found["choices"]'
)


@pytest.fixture
def play_as(endpoint: Endpoint, loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A trial of the agent in a run of that mode."""
    for name in ("GOOGLE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "a-key-for-the-tests")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.address)

    async def play_as(name: str, mode: Any, query: str = "hi") -> TrialResult:
        if "google.genai" in OTHERS[name]:
            skip_without("google.genai")
        source = source_of(name, endpoint.address) if name in SOURCES else OTHERS[name]
        base = endpoint.address.removesuffix("/v1")
        agent = loaded(source.replace("{address}", endpoint.address).replace("{base}", base))
        model, options = model_of(name, endpoint.address) if name in SOURCES else (None, None)
        spec = TrialSpec(1, 0, 0, Case("c", (Turn(query),)), AgentRef("a", "a:b"), model=model)
        spec = replace(spec, recording=Recording(mode, str(tmp_path / "recordings")))
        return await play_trial(agent, replace(spec, model_options=options) if options else spec)

    return play_as


OTHERS = {**RECORDED, "urllib": URLLIB, "aiohttp": AIOHTTP, "a thread": THREAD, "a careful agent": CAREFUL}


def answer(endpoint: Endpoint, name: str) -> None:
    if name == "a stream":
        endpoint.streams("hel", "lo")
    elif "generate" in OTHERS[name] or OTHERS[name] is GOOGLE:
        part = {"content": {"role": "model", "parts": [{"text": "hello"}]}, "finishReason": "STOP"}
        spent = {"promptTokenCount": 11, "candidatesTokenCount": 5, "totalTokenCount": 16}
        endpoint.gives(json.dumps({"candidates": [part], "usageMetadata": spent}).encode())
    else:
        endpoint.says("hello")


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_trial_is_played_again_without_the_model(name: str, endpoint: Endpoint, play_as: Any) -> None:
    answer(endpoint, name)
    first = await play_as(name, "record")

    again = await play_as(name, "replay")

    assert [trial.transcript.turns[0].answer for trial in (first, again)] == ["hello", "hello"], again.error
    assert len(endpoint.asked) == 1
    assert [usage.is_replayed for usage in first.usages] == [False] * len(first.usages)
    assert [(usage.is_replayed, usage.cost) for usage in again.usages] == [(True, 0.0)] * len(first.usages)


@pytest.mark.parametrize("name", OTHERS)
async def test_a_call_that_was_not_recorded_reaches_no_model(name: str, endpoint: Endpoint, play_as: Any) -> None:
    played = await play_as(name, "replay")

    assert endpoint.asked == []
    if name == "a thread":  # its exception is its own: the agent says it
        assert "a thread that does not know its trial" in played.transcript.turns[0].answer
    else:
        assert (played.status, played.error and played.error.kind) == ("errored", "not_recorded")


@pytest.mark.parametrize("name", ["urllib", "aiohttp", "a thread"])
async def test_an_unrecordable_call_is_made_outside_of_a_replay(name: str, endpoint: Endpoint, play_as: Any) -> None:
    answer(endpoint, name)

    played = await play_as(name, "record")

    assert (played.transcript.turns[0].answer, len(endpoint.asked)) == ("hello", 1)


async def test_a_failed_attempt_is_not_recorded_and_has_no_key(endpoint: Endpoint, play_as: Any) -> None:
    endpoint.fails(429, "slow down", retry_after_ms="1").says("hello")

    first = await play_as("openai, own client", "record")
    again = await play_as("openai, own client", "replay")

    assert [trial.transcript.turns[0].answer for trial in (first, again)] == ["hello", "hello"]
    assert len(endpoint.asked) == 2


async def test_in_auto_mode_another_question_is_a_model_call(endpoint: Endpoint, play_as: Any) -> None:
    endpoint.says("one").says("two")
    await play_as("openai, own client", "record", "first")

    again = await play_as("openai, own client", "auto", "first")
    other = await play_as("openai, own client", "auto", "second")

    assert [trial.transcript.turns[0].answer for trial in (again, other)] == ["one", "two"]
    assert [usage.is_replayed for trial in (again, other) for usage in trial.usages] == [True, False]
    assert len(endpoint.asked) == 2
