"""Answers out of LiteLLM's own cache are no answers of their own."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import ModuleType
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without

from evaldesk.llm.client import open_litellm
from evaldesk.model import Session

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]

OURS = """
from evaldesk import LlmAgent

root_agent = LlmAgent(name="a", model="small", api_base="{address}")
"""
ADK = """
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm

root_agent = Agent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="{address}"))
"""
OPENAI = """
from agents import Agent
from agents.extensions.models.litellm_model import LitellmModel

root_agent = Agent(name="a", model=LitellmModel("hosted_vllm/small", base_url="{address}", api_key="k"))
"""


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """LiteLLM's cache, used; the event is set when an answer is in it, which takes a moment after the answer."""
    litellm = open_litellm()
    monkeypatch.setitem(sys.modules, "soundfile", ModuleType("soundfile"))  # imported with each hit, for nothing
    for name in ("input_callback", "success_callback", "_async_success_callback"):
        monkeypatch.setattr(litellm, name, list(getattr(litellm, name)))
    monkeypatch.setattr(litellm, "cache", litellm.Cache(type="local"))
    keep, stored = litellm.cache.cache.async_set_cache, threading.Event()

    async def keep_and_tell(*args: Any, **options: Any) -> None:
        await keep(*args, **options)
        stored.set()

    monkeypatch.setattr(litellm.cache.cache, "async_set_cache", keep_and_tell)
    return stored


@pytest.mark.parametrize("is_streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("source", [OURS, ADK, OPENAI], ids=["ours", "adk", "openai_agents"])
async def test_a_cached_answer_is_marked_as_replayed(
    endpoint: Endpoint, loaded: Any, played: Any, stored: threading.Event, source: str, is_streaming: bool
) -> None:
    skip_without("fastapi")  # which LiteLLM imports where it answers out of its cache
    for package, needs in (("google.adk", ADK), ("agents", OPENAI)):
        if source is needs:
            skip_without(package)
    agent = loaded(source.replace("{address}", endpoint.address))
    endpoint.streams("hello") if is_streaming else endpoint.says("hello")

    first = await played(agent, Session("first", is_streaming=is_streaming), "hi")
    assert await asyncio.to_thread(stored.wait, 30), first.error
    second = await played(agent, Session("second", is_streaming=is_streaming), "hi")

    assert (first.answer, second.answer, len(endpoint.asked)) == ("hello", "hello", 1), (first.error, second.error)
    assert [(usage.is_replayed, usage.cost) for usage in first.usages] == [(False, None)]
    assert [(usage.is_replayed, usage.cost) for usage in second.usages] == [(True, 0.0)]
