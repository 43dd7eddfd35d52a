"""The model gateway: what a command's calls of models show, for each provider's API, whole and streamed."""

from __future__ import annotations

import json
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.agents.endpoint import Answer, Endpoint, chunks, completion

from evaldesk.agents import load_agent
from evaldesk.agents.remote import model_gateway
from evaldesk.agents.remote.forwarding import open_gateway
from evaldesk.agents.remote.model_gateway import ModelGateway
from evaldesk.agents.remote.providers import PROVIDERS
from evaldesk.engine import play_trial
from evaldesk.llm.pacing import Pace
from evaldesk.llm.refusals import STRICTNESS
from evaldesk.llm.retry_events import CURRENT_LISTENER, PLAYED_TURN
from evaldesk.model import AgentRef, Case, Limits, ModelOptions, Session, TrialResult, TrialSpec, Turn
from evaldesk.model.options import Recording

pytestmark = pytest.mark.anyio

Play = Callable[..., Awaitable[TrialResult]]

COMMAND = """
import json, os, sys, urllib.error, urllib.request
for line in sys.stdin:
    plan = json.loads(json.loads(line)["message"])
    said = []
    for call in plan["calls"]:
        url = os.environ[call["variable"]] + call["path"]
        request = urllib.request.Request(url, json.dumps(call["body"]).encode(), {"authorization": "Bearer k"})
        try:
            with urllib.request.urlopen(request) as answer:
                said.append(answer.read().decode())
        except urllib.error.HTTPError as error:
            said.append(f"{error.code} {error.headers.get('x-should-retry')} {error.read().decode()}")
    for event in plan.get("tells", ()):
        print(json.dumps(event))
    print(json.dumps({"kind": "message", "text": json.dumps(said)}))
    print(json.dumps({"kind": "done"}), flush=True)
"""
VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL"}


@pytest.fixture
def play_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> Play:
    """Plays turns in which a command makes these calls; every provider is at the endpoint of the test."""
    (tmp_path / "agent.py").write_text(COMMAND)
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, endpoint.address)

    async def play(*turns: Sequence[Mapping[str, Any]], tells: Sequence[object] = (), **more: Any) -> TrialResult:
        queries = tuple(Turn(json.dumps({"calls": calls, "tells": tells})) for calls in turns)
        options = json.dumps({"model_gateway": True})
        ref = AgentRef("cmd", f"{sys.executable} -S agent.py", str(tmp_path), kind="command", declared=options)
        spec = TrialSpec(1, 0, 0, Case("c", queries), ref, limits=Limits(60))
        return await play_trial(load_agent(ref), replace(spec, **more))

    return play


def call(provider: str, path: str, **body: Any) -> dict[str, Any]:
    return {"variable": VARIABLES[provider], "path": path, "body": body}


def shown(result: TrialResult, turn: int = 0) -> list[tuple[Any, ...]]:
    """The calls, results and tokens of a turn, in order."""
    found: list[tuple[Any, ...]] = []
    for event in result.transcript.turns[turn].events:
        if event.kind == "tool_call" and event.call:
            found.append(("call", event.call.name, dict(event.call.args)))
        elif event.kind == "tool_result" and event.call:
            found.append(("result", event.call.name, event.result, event.is_error))
        elif event.usage:
            found.append((event.usage.model, event.usage.tokens_in, event.usage.tokens_out))
    return found


def answers(result: TrialResult, turn: int = 0) -> list[str]:
    """What the command read."""
    found: list[str] = json.loads(result.transcript.turns[turn].answer or "[]")
    return found


def logs(result: TrialResult) -> list[str]:
    events = (event for turn in result.transcript.turns for event in turn.events)
    return [event.text for event in events if event.kind == "log" and event.author == "evaldesk"]


ASKED = [{"role": "user", "content": "Roll."}]
CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "roll", "arguments": '{"sides": 6}'}}],
}
CHAT_REQUESTS = (
    call("openai", "/chat/completions", model="small", messages=ASKED),
    call(
        "openai",
        "/chat/completions",
        model="small",
        messages=[*ASKED, CALLED, {"role": "tool", "tool_call_id": "a", "content": "4"}],
    ),
)
RESPONSES = (
    call("openai", "/responses", model="small", input="Roll."),
    call(
        "openai", "/responses", model="small", input=[{"type": "function_call_output", "call_id": "a", "output": "4"}]
    ),
)
RESPONSE_CALL = {
    "model": "small-2026",
    "output": [{"type": "function_call", "id": "x", "call_id": "a", "name": "roll", "arguments": '{"sides": 6}'}],
    "usage": {"input_tokens": 11, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 0}},
}
RESPONSE_TEXT = {
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}],
    "usage": {"input_tokens": 20, "output_tokens": 2},
}
TOOL_USE = {"type": "tool_use", "id": "a", "name": "roll", "input": {"sides": 6}}
ANTHROPIC_REQUESTS = (
    call("anthropic", "/v1/messages", model="claude", messages=ASKED),
    call(
        "anthropic",
        "/v1/messages",
        model="claude",
        messages=[
            *ASKED,
            {"role": "assistant", "content": [TOOL_USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "4"}]},
        ],
    ),
)
ANTHROPIC_CALL = {
    "content": [{"type": "text", "text": "I roll."}, TOOL_USE],
    "usage": {"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": 5},
}
ANTHROPIC_TEXT = {"content": [{"type": "text", "text": "4"}], "usage": {"input_tokens": 20, "output_tokens": 2}}
ANTHROPIC_STREAM = (
    {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I roll."}},
    {"type": "content_block_start", "index": 1, "content_block": {**TOOL_USE, "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"sid'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'es": 6}'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
)
GEMINI = "/v1beta/models/small:generateContent"
GEMINI_ASKED = {"role": "user", "parts": [{"text": "Roll."}]}
GEMINI_PART = {"functionCall": {"name": "roll", "args": {"sides": 6}}}
GEMINI_REQUESTS = (
    call("gemini", GEMINI, contents=[GEMINI_ASKED]),
    call(
        "gemini",
        GEMINI,
        contents=[
            GEMINI_ASKED,
            {"role": "model", "parts": [GEMINI_PART]},
            {"role": "user", "parts": [{"functionResponse": {"name": "roll", "response": {"result": 4}}}]},
        ],
    ),
)
GEMINI_CALL = {
    "candidates": [{"content": {"role": "model", "parts": [GEMINI_PART]}}],
    "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 2},
}
GEMINI_TEXT = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "4"}]}}],
    "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 2},
}
CHAT_STREAM = chunks(
    {"role": "assistant", "tool_calls": [{"index": 0, "id": "a", "function": {"name": "roll", "arguments": '{"sid'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": 'es": 6}'}}]},
)


def streamed(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "body": {**each["body"], "stream": True}} for each in requests]


APIS: dict[str, tuple[Sequence[Any], list[Answer], str]] = {
    "chat": (CHAT_REQUESTS, [Answer(completion("", ("a", "roll", '{"sides": 6}'))), Answer(completion("4"))], "small"),
    "chat, streamed": (
        streamed(CHAT_REQUESTS),
        [Answer(stream=CHAT_STREAM), Answer(stream=chunks({"role": "assistant", "content": "4"}))],
        "small",
    ),
    "responses": (RESPONSES, [Answer(RESPONSE_CALL), Answer(RESPONSE_TEXT)], "small"),
    "responses, streamed": (
        streamed(RESPONSES),
        [
            Answer(stream=[{"type": "response.created"}, {"type": "response.completed", "response": RESPONSE_CALL}]),
            Answer(stream=[{"type": "response.completed", "response": RESPONSE_TEXT}]),
        ],
        "small",
    ),
    "anthropic": (ANTHROPIC_REQUESTS, [Answer(ANTHROPIC_CALL), Answer(ANTHROPIC_TEXT)], "claude"),
    "anthropic, streamed": (
        streamed(ANTHROPIC_REQUESTS),
        [Answer(stream=ANTHROPIC_STREAM), Answer(ANTHROPIC_TEXT)],
        "claude",
    ),
    "gemini": (GEMINI_REQUESTS, [Answer(GEMINI_CALL), Answer(GEMINI_TEXT)], "small"),
    "gemini, streamed": (
        [{**each, "path": "/v1beta/models/small:streamGenerateContent?alt=sse"} for each in GEMINI_REQUESTS],
        [Answer(stream=[{"candidates": []}, GEMINI_CALL]), Answer(stream=[GEMINI_TEXT])],
        "small",
    ),
}


@pytest.mark.parametrize("name", APIS)
async def test_calls_results_and_tokens_are_read_in_every_api(name: str, play_calls: Play, endpoint: Endpoint) -> None:
    requests, given, model = APIS[name]
    endpoint.answers += given
    second = (20, 2) if "chat" not in name else (11, 5)
    result = {"result": 4} if "gemini" in name else "4"

    played = await play_calls(requests)

    assert shown(played) == [
        (model, 11, 5),
        ("call", "roll", {"sides": 6}),
        ("result", "roll", result, False),
        (model, *second),
    ]
    assert [call.name for call in played.transcript.turns[0].tool_calls] == ["roll"]
    assert played.transcript.captures == ("told", "gateway")
    assert played.tokens == 11 + 5 + sum(second)
    assert played.cost is None  # no list has a model of that name
    assert endpoint.headers[0]["authorization"] == "Bearer k"


@pytest.mark.parametrize("name", APIS)
async def test_the_command_gets_the_providers_answer(name: str, play_calls: Play, endpoint: Endpoint) -> None:
    requests, given, _ = APIS[name]
    endpoint.answers += given
    wanted = [json.dumps(answer.body) if not answer.stream else "" for answer in given]

    played = await play_calls(requests)

    for said, answer, whole in zip(answers(played), given, wanted, strict=True):
        lines = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: {")]
        own = [event for event in answer.stream if event.get("choices") != []]
        assert (lines if answer.stream else said) == (own if answer.stream else whole)
        assert said.endswith("data: [DONE]\n\n") or not answer.stream


async def test_stream_usage_is_requested_unless_the_endpoint_refuses_it(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.fails(400, "unknown field stream_options")
    endpoint.answers.append(Answer(stream=chunks({"role": "assistant", "content": "4"})[:-1]))

    played = await play_calls(streamed(CHAT_REQUESTS[:1]))

    assert [body.get("stream_options") for body in endpoint.asked] == [{"include_usage": True}, None]
    assert played.status == "finished"
    assert shown(played) == [("small", 0, 0)]


async def test_an_agent_that_requests_stream_usage_gets_it(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.answers.append(Answer(stream=chunks({"role": "assistant", "content": "4"})))
    request = call("openai", "/chat/completions", messages=ASKED, stream=True, stream_options={"include_usage": True})

    played = await play_calls([request])

    assert '"prompt_tokens": 11' in answers(played)[0]


async def test_tokens_that_a_request_claims_are_not_counted(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.says("4")
    claimed = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}, "choices": [], "object": "chat.completion"}

    played = await play_calls([call("openai", "/chat/completions", **CHAT_REQUESTS[0]["body"], **claimed)])

    assert shown(played) == [("small", 11, 5)]


async def test_an_error_answer_is_retried_by_the_run_options(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.fails(429, "slow down", retry_after="0.01").fails(500, "broken", retry_after="0.01").says("4")

    played = await play_calls(CHAT_REQUESTS[:1], model_options=ModelOptions(n_retries=2))

    assert [usage.n_attempts for usage in played.usages] == [3]
    assert len(endpoint.asked) == 3


async def test_the_last_error_goes_to_the_agent_and_its_sdk_does_not_retry(
    play_calls: Play, endpoint: Endpoint
) -> None:
    endpoint.fails(401, "wrong key")

    played = await play_calls(CHAT_REQUESTS[:1])

    assert answers(played)[0].startswith("401 false ")
    assert "wrong key" in answers(played)[0]
    assert shown(played) == []


async def test_a_redirect_is_passed_on_and_not_followed(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.answers.append(Answer({"moved": 1}, 307, {"location": "http://127.0.0.1:9/elsewhere"}))

    played = await play_calls(CHAT_REQUESTS[:1])

    assert len(endpoint.asked) == 1
    assert '{"moved": 1}' in answers(played)[0]


async def test_a_provider_that_cannot_be_reached_is_an_error_of_the_call(
    play_calls: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")

    played = await play_calls(CHAT_REQUESTS[:1], model_options=ModelOptions(n_retries=0))

    assert answers(played)[0].startswith("502 false ")
    assert any("A call of small failed" in line for line in logs(played))


async def test_recorded_calls_are_replayed_without_a_provider(
    play_calls: Play, endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.answers += APIS["chat, streamed"][1]
    requests = streamed(CHAT_REQUESTS)
    recording = Recording("record", str(tmp_path / "recordings"))

    first = await play_calls(requests, recording=recording)
    again = await play_calls(requests, recording=replace(recording, mode="replay"))
    other = await play_calls(streamed(CHAT_REQUESTS[1:]), recording=replace(recording, mode="replay"), trial_index=1)

    assert len(endpoint.asked) == 2
    assert shown(again) == shown(first)
    assert answers(again)[0].count("data: ") >= answers(first)[0].count("data: ")
    assert again.cost == 0
    assert all(usage.is_replayed for usage in again.usages)
    assert "is not in the recording (trial 2)" in answers(other)[0]


@pytest.mark.parametrize(
    ("provider", "path", "model", "usage", "cost"),
    [
        (
            "openai",
            "/chat/completions",
            "gpt-4o-mini",
            {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}},
            (60 * 0.15 + 40 * 0.075 + 20 * 0.6) / 1_000_000,
        ),
        (
            "anthropic",
            "/v1/messages",
            "claude-sonnet-4-5",
            {"input_tokens": 60, "output_tokens": 20, "cache_read_input_tokens": 40},
            (60 * 3 + 40 * 0.3 + 20 * 15) / 1_000_000,
        ),
        (
            "anthropic",
            "/v1/messages",
            "claude-sonnet-4-5",
            {"input_tokens": 60, "output_tokens": 20, "cache_creation_input_tokens": 40},
            None,
        ),
    ],
    ids=["cached", "cached, another provider", "kept for later"],
)
async def test_a_call_has_the_price_that_an_adapter_gives_it(
    provider: str,
    path: str,
    model: str,
    usage: dict[str, Any],
    cost: float | None,
    play_calls: Play,
    endpoint: Endpoint,
) -> None:
    said: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}]}
    said |= {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "4"}],
        "stop_reason": "end_turn",
    }
    endpoint.gives(json.dumps({**said, "model": model, "usage": usage}).encode())

    played = await play_calls([call(provider, path, model=model, max_tokens=5, messages=ASKED)])

    assert played.tokens == 120
    assert played.cost == (cost if cost is None else pytest.approx(cost))


async def test_prices_of_the_run_are_for_its_calls(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.says("4")

    played = await play_calls(CHAT_REQUESTS[:1], model_options=ModelOptions(price_in=1.0, price_out=2.0))

    assert played.cost == pytest.approx((11 * 1 + 5 * 2) / 1_000_000)


async def test_each_turn_has_its_own_calls_without_duplicates(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.answers += APIS["chat"][1]
    tells = [
        {"kind": "tool_call", "name": "roll", "args": {}},
        {"kind": "usage", "model": "small", "tokens_in": 99},
        {"kind": "log", "text": "kept"},
    ]

    played = await play_calls(CHAT_REQUESTS[:1], CHAT_REQUESTS[1:], tells=tells)

    assert shown(played, 0) == [("small", 11, 5), ("call", "roll", {"sides": 6})]
    assert shown(played, 1)[-1] == ("small", 11, 5)
    assert played.tokens == 32
    assert [event.text for event in played.transcript.turns[0].events if event.text == "kept"]


async def test_calls_reported_by_a_command_count_in_a_turn_without_a_model(
    play_calls: Play, endpoint: Endpoint
) -> None:
    endpoint.answers += APIS["chat"][1]
    roll = {"name": "roll", "id": "c9"}
    tells = [
        {"kind": "tool_call", **roll, "args": {"sides": 4}},
        {"kind": "tool_result", **roll, "result": 3},
        {"kind": "usage", "model": "own", "tokens_in": 7},
    ]
    asked = dict(CHAT_REQUESTS[0])
    rolled = {"role": "tool", "tool_call_id": "c9", "content": "3"}
    asked["body"] = {**asked["body"], "messages": [*asked["body"]["messages"], rolled]}

    played = await play_calls([], [asked], tells=tells)

    assert shown(played, 0) == [("call", "roll", {"sides": 4}), ("result", "roll", 3, False), ("own", 7, 0)]
    assert shown(played, 1) == [("small", 11, 5), ("call", "roll", {"sides": 6})]


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"null", b"{", b'{"choices": 1}', b'{"choices": [{"message": {"tool_calls": 7}}]}', b"[" * 90_000],
)
async def test_an_answer_of_any_shape_reaches_the_agent(raw: bytes, play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.gives(raw)

    played = await play_calls(CHAT_REQUESTS[:1])

    assert played.status == "finished"
    assert answers(played)[0].encode() == raw
    assert [usage.is_least for usage in played.usages] == [True]


@pytest.mark.parametrize("number", [-1, 2**70, "many", None, [1]])
async def test_invalid_token_counts_are_dropped_with_a_log(
    number: object, play_calls: Play, endpoint: Endpoint
) -> None:
    endpoint.answers.append(Answer({**completion("4"), "usage": {"prompt_tokens": number, "completion_tokens": 5}}))

    played = await play_calls(CHAT_REQUESTS[:1])

    assert played.status == "finished"
    assert (played.tokens == 5) == (number is None)
    assert played.is_least == (number is not None)
    assert any("Left out: the tokens of an answer" in line for line in logs(played)) == (number is not None)


@pytest.mark.parametrize(
    ("requests", "stream", "tokens_in"),
    [
        (streamed(CHAT_REQUESTS), CHAT_STREAM[:1], 0),
        (streamed(ANTHROPIC_REQUESTS), ANTHROPIC_STREAM[:3], 11),
        (APIS["gemini, streamed"][0], [GEMINI_CALL], 11),
    ],
    ids=["chat", "anthropic", "gemini"],
)
async def test_a_stream_cut_by_the_provider_is_cut_for_the_agent(
    requests: Any, stream: Any, tokens_in: int, play_calls: Play, endpoint: Endpoint, tmp_path: Path
) -> None:
    recording = Recording("record", str(tmp_path / "calls"))
    endpoint.answers.append(Answer(stream=list(stream), is_dropped=True))

    result = await play_calls([requests[0]], recording=recording)
    again = await play_calls([requests[0]], recording=replace(recording, mode="replay"))

    assert result.error is not None  # the command does not expect it
    assert "IncompleteRead" in result.error.trace + result.error.message + result.logs
    assert [(usage.tokens_in, usage.cost, usage.is_least) for usage in result.usages] == [(tokens_in, None, True)]
    assert sum("broke off" in each for each in logs(result)) == 1
    assert "not in the recording" in str(again)
    assert len(endpoint.asked) == 1


def test_a_call_without_an_answer_at_the_end_of_the_turn_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_gateway, "LAST_CALL_S", 0.0)
    gateway, missed = ModelGateway({}), Mock()
    token = PLAYED_TURN.set(missed)

    with gateway.call(), gateway.listening(Session("s"), lambda event: None):
        assert missed.note_missed_call.call_count == 0

    PLAYED_TURN.reset(token)
    assert missed.note_missed_call.call_count == 1


def test_an_address_is_for_its_session_and_for_its_turns() -> None:
    gateway = open_gateway({"NO_PROXY": "example.org"})
    variables = gateway.variables()
    address = variables["OPENAI_BASE_URL"]

    def refused(url: str) -> int:
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(url, b"{}")  # noqa: S310
        with error.value as answer:
            return answer.code

    assert variables["NO_PROXY"] == "example.org,127.0.0.1"
    assert refused(f"{address}/chat/completions") == 409
    assert refused(f"{address}/../../x") == 404
    assert refused(address.replace(gateway.key, "another")) == 404
    assert refused(address.replace("/openai", "/evil")) == 404
    gateway.close()
    assert refused(f"{address}/chat/completions") == 404
    assert set(VARIABLES) == set(PROVIDERS)


SDKS = """
import json, sys
for line in sys.stdin:
    from openai import OpenAI
    said = OpenAI(api_key="k").chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Roll."}]
    ).choices[0].message.content
    pieces = OpenAI(api_key="k").chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Roll."}], stream=True
    )
    said += "".join(piece.choices[0].delta.content or "" for piece in pieces)
    from google import genai
    client = genai.Client(api_key="k")
    said += client.models.generate_content(model="small", contents="Roll.").text
    print(json.dumps({"kind": "message", "text": said}))
    print(json.dumps({"kind": "done"}), flush=True)
"""


async def test_sdks_of_the_providers_use_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint
) -> None:
    pytest.importorskip("openai", reason="the SDK of OpenAI is not installed")
    pytest.importorskip("google.genai", reason="the SDK of Google is not installed")
    (tmp_path / "agent.py").write_text(textwrap.dedent(SDKS))
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, endpoint.address)
    endpoint.says("one ").streams("two ")
    endpoint.answers.append(Answer({**GEMINI_TEXT}))
    ref = AgentRef(
        "cmd", f"{sys.executable} agent.py", str(tmp_path), kind="command", declared='{"model_gateway": true}'
    )

    played = await play_trial(load_agent(ref), TrialSpec(1, 0, 0, Case("c", (Turn("go"),)), ref, limits=Limits(60)))

    assert played.transcript.turns[0].answer == "one two 4"
    assert [(usage.model, usage.tokens_in) for usage in played.usages] == [("small", 11), ("small", 11), ("small", 20)]


async def test_a_turn_gets_no_more_model_calls_than_the_run_allows(play_calls: Play, endpoint: Endpoint) -> None:
    endpoint.says("one").says("two").says("never")
    asked = [CHAT_REQUESTS[0]] * 3

    result = await play_calls(asked, asked, model_options=ModelOptions(max_turns=2))

    [turn] = result.transcript.turns
    assert (result.status, result.stop_reason, turn.stop_reason) == ("finished", "max_turns", "max_turns")
    assert (len(endpoint.asked), len(turn.usages), turn.answer) == (2, 2, "")


@pytest.mark.parametrize("name", APIS)
async def test_a_result_sent_beyond_the_limit_makes_its_call_count(
    name: str, play_calls: Play, endpoint: Endpoint
) -> None:
    requests, given, _ = APIS[name]
    endpoint.answers += given[:1]

    result = await play_calls(requests, model_options=ModelOptions(max_turns=1))

    [turn] = result.transcript.turns
    assert turn.stop_reason == "max_turns"
    assert [event.kind for event in turn.events if event.call] == ["tool_call", "tool_result"]
    assert [call.name for call in turn.judged_calls] == ["roll"]


async def test_the_limit_of_model_calls_is_per_turn(play_calls: Play, endpoint: Endpoint) -> None:
    for _ in range(4):
        endpoint.says("4")

    result = await play_calls([CHAT_REQUESTS[0]] * 2, [CHAT_REQUESTS[0]] * 2, model_options=ModelOptions(max_turns=2))

    assert [turn.stop_reason for turn in result.transcript.turns] == ["answered", "answered"]


async def test_the_names_of_models_are_no_model_calls(play_calls: Play, endpoint: Endpoint) -> None:
    other = call("openai", "/embeddings", model="small", input="x")
    endpoint.says("4")

    result = await play_calls([other, other, CHAT_REQUESTS[0]], model_options=ModelOptions(max_turns=1, n_retries=0))

    assert result.transcript.turns[0].stop_reason == "answered"


async def test_calls_keep_to_the_rate_of_the_run(
    play_calls: Play, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    booked: list[tuple[int | None, str]] = []
    spent: list[int] = []

    def wait_s(pace: Pace, model: str) -> float:
        booked.append((pace.rpm, model))
        return 0.001

    monkeypatch.setattr(Pace, "wait_s", wait_s)
    monkeypatch.setattr(Pace, "book_tokens", lambda pace, model, n_tokens: spent.append(n_tokens))
    endpoint.says("4").says("5")
    pauses: list[Any] = []
    CURRENT_LISTENER.set(pauses.append)

    result = await play_calls([CHAT_REQUESTS[0]] * 2, model_options=ModelOptions(rpm=30, tpm=1000))

    assert result.error is None
    assert booked == [(30, "small")] * 2
    assert spent == [16, 16]
    assert [wait.why for wait in pauses] == ["paced"] * 2


FAULTS = {
    "rate_limit": '429 None {"type": "error", "error": {"type": "rate_limit_error"',
    "server_error": '500 None {"type": "error", "error": {"type": "api_error"',
    "malformed": '{"id": "injected", "choices": [{"message": {"role": "assistant", "content": ',
}


@pytest.mark.parametrize("name", FAULTS)
async def test_an_injected_fault_reaches_the_agent_without_retries_and_is_logged(
    name: str, play_calls: Play, endpoint: Endpoint
) -> None:
    result = await play_calls([CHAT_REQUESTS[0]], model_options=ModelOptions(faults=((name, 1.0),)))

    assert answers(result)[0].startswith(FAULTS[name])
    assert endpoint.asked == []
    assert [each for each in logs(result) if each.startswith("Injected fault in request 1 of this turn, to small: ")]
    assert result.error is None
    assert result.usages == ()


@pytest.mark.parametrize("requests", [CHAT_REQUESTS, streamed(CHAT_REQUESTS)], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "n_asked"), [("timeout", 0), ("truncated", 1)])
async def test_an_injected_connection_fault_cuts_the_answer(
    name: str, n_asked: int, requests: Any, play_calls: Play, endpoint: Endpoint
) -> None:
    endpoint.answers.append(Answer(stream=CHAT_STREAM) if requests is not CHAT_REQUESTS else Answer(completion("4")))

    result = await play_calls([requests[0]], model_options=ModelOptions(faults=((name, 1.0),)))

    assert result.error is not None  # the command does not expect it
    said = result.error.trace + result.error.message + result.logs
    assert any(word in said for word in ("Remote", "Incomplete")), said
    assert len(endpoint.asked) == n_asked
    assert sum("Injected fault" in each for each in logs(result)) == 1


async def test_equal_trials_have_equal_faults_and_a_share_is_one_of_all_calls(
    play_calls: Play, endpoint: Endpoint
) -> None:
    endpoint.answers.extend([Answer(completion("4"))] * 120)
    options = ModelOptions(faults=(("rate_limit", 0.25), ("server_error", 0.25)))

    first, second = [await play_calls([CHAT_REQUESTS[0]] * 60, model_options=options, seed=7) for _ in range(2)]
    other = await play_calls([CHAT_REQUESTS[0]] * 60, model_options=options, seed=8)

    assert answers(first) == answers(second)
    assert answers(first) != answers(other)
    assert 15 <= sum("Injected" in each for each in logs(first)) <= 45


async def test_a_field_of_the_run_is_dropped_when_its_model_refuses_it(
    play_calls: Play, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STRICTNESS, "_refused_fields", {})
    refusal = {"error": {"message": "Unsupported value: 'temperature' does not support 0.7 with this model."}}
    warm = [call("openai", "/chat/completions", model="small", messages=ASKED, temperature=0.7, max_tokens=9)]
    newer = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    endpoint.answers.extend([Answer(refusal, 400), Answer(newer, 400), *[Answer(completion("4"))] * 2])

    result = await play_calls(warm * 2, model_options=ModelOptions(temperature=0.7, max_tokens=9))

    assert ["temperature" in body for body in endpoint.asked] == [True, False, False, False]
    assert [body.get("max_completion_tokens") for body in endpoint.asked] == [None, None, 9, 9]
    assert logs(result) == ["small refuses temperature: from now on it is asked without"]
    assert len(result.usages) == 2


async def test_a_refused_field_of_the_agent_fails_as_in_production(
    play_calls: Play, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STRICTNESS, "_refused_fields", {})
    refusal = {"error": {"message": "Unsupported value: 'temperature' does not support 0.7 with this model."}}
    endpoint.answers.append(Answer(refusal, 400))

    result = await play_calls([call("openai", "/chat/completions", model="small", messages=ASKED, temperature=0.7)])

    assert answers(result)[0].startswith("400 false")
    assert len(endpoint.asked) == 1


async def test_an_answer_that_was_cut_at_its_limit_is_marked(play_calls: Play, endpoint: Endpoint) -> None:
    choice = {"message": {"role": "assistant", "content": "hel"}, "finish_reason": "length"}
    cut = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    endpoint.answers.extend([Answer(cut), Answer(completion("4"))])

    result = await play_calls([CHAT_REQUESTS[0]], [CHAT_REQUESTS[0]])

    assert [turn.is_cut for turn in result.transcript.turns] == [True, False]


@pytest.mark.parametrize("name", APIS)
async def test_a_double_is_answered_to_the_model_in_every_api(name: str, play_calls: Play, endpoint: Endpoint) -> None:
    requests, given, model = APIS[name]
    endpoint.answers += given
    doubles: Any = {"tools": {"roll": [{"result": {"number": 4}}]}}
    queries = (Turn(json.dumps({"calls": requests[:1], "tells": []})),)

    played = await play_calls(requests[:1], case=Case("c", queries, extra={"tool_doubles": doubles}))

    [text] = answers(played)
    assert "roll" not in text
    assert "4" in text
    [call, result] = [each for each in shown(played) if each[0] in ("call", "result")]
    assert (call[1:], result[1]) == (("roll", {"sides": 6}), "roll")
    assert "number" in str(result[2])
    assert [each[0] for each in shown(played) if each[0] not in ("call", "result")] == [model] * 2
    assert "number" in json.dumps(endpoint.asked[1])
