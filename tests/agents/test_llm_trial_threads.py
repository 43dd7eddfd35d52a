"""Model calls that are made in a trial thread: those of the direct client stay in its thread, LiteLLM's do not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.model_calls import HASTE, call_of

from evaldesk.engine.worker.main import TrialThread
from evaldesk.llm import complete, direct

LONG_S = 60


class OneThread:
    """A trial thread, and what becomes of the work that it is given."""

    def __init__(self) -> None:
        self.trial_thread = TrialThread()
        self._ended: SimpleQueue[asyncio.Task[object]] = SimpleQueue()

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        self.trial_thread.start(work, self._ended.put)

    def end(self) -> asyncio.Task[object]:
        return self._ended.get(timeout=LONG_S)

    def carry_out(self, work: Coroutine[Any, Any, object]) -> Any:
        self.begin(work)
        return self.end().result()


class Asked(list[dict[str, Any]]):
    """What an endpoint was asked, and whether there was something yet."""

    def __init__(self) -> None:
        super().__init__()
        self.has_any = threading.Event()

    def append(self, asked: dict[str, Any]) -> None:
        super().append(asked)
        self.has_any.set()


@pytest.fixture
def trial_thread() -> Iterator[OneThread]:
    trial_thread = OneThread()
    yield trial_thread
    trial_thread.carry_out(direct.close())


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads from which calls were taken to the loop of all model calls."""
    from evaldesk.llm import loop

    hops: list[str] = []
    taken = loop.on_loop

    async def on_loop(work: Coroutine[Any, Any, Any]) -> Any:
        hops.append(threading.current_thread().name)
        return await taken(work)

    monkeypatch.setattr(loop, "on_loop", on_loop)
    return hops


def test_calls_stay_in_the_thread_of_the_trial(trial_thread: OneThread, endpoint: Endpoint, hops: list[str]) -> None:
    endpoint.fails(503).says("hello").says("again")

    first = trial_thread.carry_out(complete(call_of(endpoint), retry_policy=HASTE))
    second = trial_thread.carry_out(complete(call_of(endpoint)))

    assert (first.text, first.usage.n_attempts, second.text) == ("hello", 2, "again")
    assert hops == []


def test_calls_of_litellm_run_on_its_one_loop(
    trial_thread: OneThread, endpoint: Endpoint, hops: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    endpoint.says("hello")

    reply = trial_thread.carry_out(complete(call_of(endpoint, model="openai/gpt-4o-mini")))

    assert reply.text == "hello"
    assert hops == [trial_thread.trial_thread._thread.name]


def test_every_piece_of_a_stream_is_sent_before_the_reply(trial_thread: OneThread, endpoint: Endpoint) -> None:
    endpoint.streams("hel", "lo")
    pieces: list[str] = []

    async def work() -> tuple[str, str]:
        reply = await complete(call_of(endpoint), pieces.append)
        return reply.text, "".join(pieces)

    assert trial_thread.carry_out(work()) == ("hello", "hello")


def test_a_call_ends_with_its_task(trial_thread: OneThread, endpoint: Endpoint) -> None:
    release = endpoint.stalls()
    endpoint.asked = asked = Asked()
    trial_thread.begin(complete(call_of(endpoint)))
    assert asked.has_any.wait(LONG_S)

    trial_thread.trial_thread.cancel()

    assert trial_thread.end().cancelled()
    release.set()
