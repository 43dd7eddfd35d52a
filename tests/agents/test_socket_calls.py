"""Model requests of DSPy's own client, on sockets: calls, results, tokens, doubles, recordings and faults."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, chunks
from tests.agents.lm15_transports import write_transports
from tests.agents.test_wire_calls import story

from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.options import ModelOptions, Recording

pytestmark = pytest.mark.anyio

HEAD = """
import json
from lm15.transports import _async, _exceptions, _sync
from lm15.transports._types import TransportRequest

TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object", "properties": {}}}}]
seen = []

def request_of(messages, **more):
    body = json.dumps({"model": "small", "messages": messages, "tools": TOOLS, **more}).encode()
    return TransportRequest("POST", "{address}/chat/completions", [("content-type", "application/json")], body)

def message_of(response, data):
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}: {data.decode()}")
    return json.loads(data)["choices"][0]["message"]

def after(message):
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "on its way"} for call in message["tool_calls"]]
    return [message, *results]
"""
SYNC = """
def root_agent(message):
    messages = [{"role": "user", "content": message}]
    while True:
        response = _sync.StdlibTransport().stream(request_of(messages))
        answer = message_of(response, response.read())
        seen.append(answer)
        if not answer.get("tool_calls"):
            return answer["content"]
        messages += after(answer)
"""
ASYNC = """
async def root_agent(message):
    messages = [{"role": "user", "content": message}]
    while True:
        response = await _async.StdlibAsyncTransport()._do_stream(request_of(messages))
        answer = message_of(response, await response.read())
        seen.append(answer)
        if not answer.get("tool_calls"):
            return answer["content"]
        messages += after(answer)
"""
ORDER = ("c1", "get_order", '{"order": "A7"}')
BOTH = pytest.mark.parametrize("source", [SYNC, ASYNC], ids=["a client that blocks", "on a loop"])


@pytest.fixture
def play(
    endpoint: Endpoint, loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    write_transports(tmp_path / "packages")
    monkeypatch.syspath_prepend(tmp_path / "packages")

    async def play(source: str, **fields: Any) -> TrialResult:
        agent = loaded((HEAD + source).replace("{address}", endpoint.address))
        extra = fields.pop("extra", {})
        case = Case("c", (Turn("Where is A7?"),), extra=extra)
        ref = AgentRef("a", "some_agent.agent:root_agent")
        return await play_trial(agent, replace(TrialSpec(1, 0, 0, case, ref, limits=Limits(60)), **fields))

    yield play
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm15"]:
        del sys.modules[name]


def tokens(result: TrialResult) -> list[tuple[int, int, bool]]:
    return [(usage.tokens_in, usage.tokens_out, usage.is_least) for usage in result.usages]


@BOTH
async def test_calls_results_and_tokens_are_seen(source: str, endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER).says("It comes.")

    result = await play(source)

    assert result.error is None
    assert story(result.transcript.turns[0]) == [("get_order", {"order": "A7"}), "on its way", "It comes."]
    assert len(tokens(result)) == len(endpoint.asked) == 2
    assert all(tokens_in > 0 and not is_least for tokens_in, _, is_least in tokens(result))


@BOTH
async def test_a_double_answers_the_model_and_the_client_never_sees_the_call(
    source: str, endpoint: Endpoint, play: Any
) -> None:
    endpoint.says("", ORDER).says("It is lost.")

    result = await play(source, extra={"tool_doubles": {"tools": {"get_order": [{"result": "lost"}]}}})

    assert result.error is None
    assert story(result.transcript.turns[0]) == [("get_order", {"order": "A7"}), "lost", "It is lost."]
    assert endpoint.asked[1]["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "lost"}
    assert [answer["content"] for answer in sys.modules["some_agent.agent"].seen] == ["It is lost."]


@BOTH
async def test_a_recorded_trial_is_replayed_without_the_model(
    source: str, endpoint: Endpoint, play: Any, tmp_path: Path
) -> None:
    endpoint.says("", ORDER).says("It comes.")

    results = [await play(source, recording=Recording(mode, str(tmp_path / "r"))) for mode in ("record", "replay")]

    assert [result.error for result in results] == [None, None]
    first, again = (story(result.transcript.turns[0]) for result in results)
    assert first == again == [("get_order", {"order": "A7"}), "on its way", "It comes."]
    assert [usage.is_replayed for usage in results[1].usages] == [True, True]
    assert len(endpoint.asked) == 2


@BOTH
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("rate_limit", "HTTP 429"),
        ("server_error", "HTTP 500"),
        ("timeout", "no answer in time (injected)"),
        ("truncated", "the answer breaks off (injected)"),
        ("malformed", "Expecting value"),
    ],
)
async def test_faults_are_injected(source: str, fault: str, words: str, endpoint: Endpoint, play: Any) -> None:
    endpoint.says("It comes.")

    result = await play(source, model_options=ModelOptions(faults=((fault, 1.0),)))

    assert result.status == "errored"
    assert words in str(result.error)
    assert len(endpoint.asked) == (fault == "truncated")


@BOTH
async def test_a_refused_request_is_a_failed_call(source: str, endpoint: Endpoint, play: Any) -> None:
    endpoint.answers.append(Answer({"error": {"message": "no such model"}}, status=404))

    result = await play(source)

    assert "HTTP 404" in str(result.error)
    assert tokens(result) == []


async def test_a_stream_that_is_left_at_its_end_mark_is_counted(endpoint: Endpoint, play: Any) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    endpoint.answers.append(Answer(stream=[*chunks({"role": "assistant", "content": "It comes."}), usage]))

    result = await play(
        """
def root_agent(message):
    response = _sync.StdlibTransport().stream(request_of([{"role": "user", "content": message}], stream=True))
    text = b""
    for part in response:
        text += part
        if b"[DONE]" in text:
            break
    response._release(False)
    return "read"
"""
    )

    assert result.error is None
    assert [(tokens_in, tokens_out) for tokens_in, tokens_out, _ in tokens(result)] == [(4, 2)]
