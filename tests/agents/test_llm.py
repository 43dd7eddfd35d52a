"""The door to LiteLLM, against an OpenAI-compatible endpoint on loopback."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.agents.endpoint import Answer, chunks

from evaldesk.errors import ModelError
from evaldesk.llm import ModelCall, Patience, complete
from evaldesk.llm.failures import ModelFailure, failure_of
from evaldesk.model import JsonObject

pytestmark = pytest.mark.anyio

MODEL = "hosted_vllm/small"
HASTE = Patience(n_attempts=3, first_wait_s=0.001, longest_wait_s=0.002)
TOOL: JsonObject = {
    "type": "function",
    "function": {"name": "roll_die", "description": "Roll.", "parameters": {"type": "object", "properties": {}}},
}


def _call(endpoint: Any, **fields: Any) -> ModelCall:
    messages = [{"role": "user", "content": "hi"}]
    return ModelCall(**{"model": MODEL, "messages": messages, "api_base": endpoint.address, **fields})


async def test_a_reply_has_text_usage_and_no_price_where_none_is_known(endpoint: Any) -> None:
    endpoint.says("hello")

    reply = await complete(_call(endpoint))

    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("hello", (), "stop")
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (11, 5)
    assert (reply.usage.model, reply.usage.cost, reply.usage.n_attempts) == (MODEL, None, 1)


async def test_only_what_openai_knows_reaches_the_endpoint(endpoint: Any) -> None:
    endpoint.says("hello")

    await complete(_call(endpoint, tools=[TOOL], temperature=0.5, max_tokens=9, seed=4))

    assert endpoint.asked == [
        {
            "model": "small",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [TOOL],
            "temperature": 0.5,
            "max_tokens": 9,
            "seed": 4,
        }
    ]


@pytest.mark.parametrize("model", ["hosted_vllm/small", "openai/small"])
async def test_tool_calls_come_back_as_the_model_wrote_them(
    endpoint: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")
    endpoint.says("", ("c1", "roll_die", '{"sides": 6}'), ("c2", "roll_die", "{broken"))

    reply = await complete(_call(endpoint, model=model, tools=[TOOL]))

    found = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    assert found == [("c1", "roll_die", '{"sides": 6}'), ("c2", "roll_die", "{broken")]


async def test_a_known_model_has_a_price(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")
    endpoint.says("hello")

    reply = await complete(_call(endpoint, model="openai/gpt-4o-mini"))

    assert reply.usage.cost == pytest.approx(11 * 0.15e-6 + 5 * 0.6e-6)


async def test_a_streamed_reply_tells_its_text_piece_by_piece(endpoint: Any) -> None:
    endpoint.answers.append(_stream({"content": "hel"}, {"content": "lo"}))
    pieces: list[str] = []

    reply = await complete(_call(endpoint), pieces.append)

    assert pieces == ["hel", "lo"]
    assert (reply.text, reply.usage.tokens_in, reply.usage.tokens_out) == ("hello", 11, 5)
    assert endpoint.asked[0]["stream_options"] == {"include_usage": True}


async def test_streamed_tool_calls_are_put_together(endpoint: Any) -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "roll_die", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": text}} for text in ('{"sides"', ": 6}")]
    endpoint.answers.append(_stream(*({"tool_calls": [piece]} for piece in (first, *pieces))))

    reply = await complete(_call(endpoint, tools=[TOOL]), lambda _: None)

    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [("c1", "roll_die", '{"sides": 6}')]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_passing_failure_is_tried_again_and_counted(endpoint: Any, status: int) -> None:
    endpoint.fails(status).says("hello")

    reply = await complete(_call(endpoint), patience=HASTE)

    assert (reply.text, reply.usage.n_attempts, len(endpoint.asked)) == ("hello", 2, 2)


async def test_retry_after_is_waited_for_instead_of_our_own_pause(endpoint: Any) -> None:
    endpoint.fails(429, retry_after="0").says("hello")

    reply = await asyncio.wait_for(complete(_call(endpoint), patience=Patience(first_wait_s=60)), 10)

    assert reply.usage.n_attempts == 2


async def test_a_retry_after_beyond_our_patience_ends_the_call(endpoint: Any) -> None:
    endpoint.fails(429, retry_after="3600")

    with pytest.raises(ModelError) as caught:
        await complete(_call(endpoint))

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == ("rate_limit", False, 1)


async def test_patience_ends(endpoint: Any) -> None:
    for _ in range(3):
        endpoint.fails(500, "the disk is full")

    with pytest.raises(ModelError, match=r"the disk is full.*\(tried 3 times\)") as caught:
        await complete(_call(endpoint), patience=HASTE)

    assert (caught.value.kind, caught.value.is_fatal) == ("server_error", False)


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (401, None, "authentication", "set HOSTED_VLLM_API_KEY"),
        (403, None, "authentication", "set HOSTED_VLLM_API_KEY"),
        (404, "model_not_found", "unknown_model", "name it as provider/model"),
        (429, "insufficient_quota", "quota", "nothing left to spend"),
        (402, None, "quota", "nothing left to spend"),
    ],
)
async def test_a_fatal_failure_is_not_tried_again_and_says_what_to_do(
    endpoint: Any, status: int, code: str | None, kind: str, says: str
) -> None:
    endpoint.fails(status, "refused", code)

    with pytest.raises(ModelError) as caught:
        await complete(_call(endpoint), patience=HASTE)

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == (kind, True, 1)
    assert says in str(caught.value)


async def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(ModelError, match="set OPENAI_API_KEY") as caught:
        await complete(ModelCall("openai/gpt-4o-mini", [{"role": "user", "content": "hi"}]))

    assert (caught.value.kind, caught.value.is_fatal) == ("authentication", True)


@pytest.mark.parametrize("model", ["nonsense", "demo/nonsense", "demo/dice?sides=6"])
async def test_an_unknown_model_is_fatal(model: str) -> None:
    with pytest.raises(ModelError, match="no such model") as caught:
        await complete(ModelCall(model, [{"role": "user", "content": "hi"}]))

    assert (caught.value.kind, caught.value.is_fatal) == ("unknown_model", True)


async def test_a_refused_request_fails_once_and_is_not_fatal(endpoint: Any) -> None:
    endpoint.fails(400, "temperature must be below 1")

    with pytest.raises(ModelError, match="temperature must be below 1") as caught:
        await complete(_call(endpoint), patience=HASTE)

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == ("bad_request", False, 1)


async def test_nobody_at_the_address_is_a_connection_failure() -> None:
    call = ModelCall(MODEL, [{"role": "user", "content": "hi"}], api_base="http://127.0.0.1:9/v1")

    with pytest.raises(ModelError, match="tried 3 times") as caught:
        await complete(call, patience=HASTE)

    assert (caught.value.kind, caught.value.is_fatal) == ("connection", False)


@pytest.mark.parametrize(
    "raw", [b'{"choices": [{"mess', b"<html>The gateway says hello</html>", b"{}", b'{"choices": []}', b"", b"null"]
)
@pytest.mark.parametrize("model", ["hosted_vllm/small", "openai/small"])
async def test_an_answer_that_is_none_is_an_error_and_never_an_empty_reply(
    endpoint: Any, raw: bytes, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")
    for _ in range(3):
        endpoint.gives(raw)

    with pytest.raises(ModelError) as caught:
        await complete(_call(endpoint, model=model), patience=HASTE)

    assert not caught.value.is_fatal
    assert "tried 3 times" in str(caught.value)


async def test_a_dropped_connection_is_tried_again(endpoint: Any) -> None:
    endpoint.drops().says("hello")

    reply = await complete(_call(endpoint), patience=HASTE)

    assert (reply.text, reply.usage.n_attempts) == ("hello", 2)


async def test_a_stream_that_breaks_off_is_an_error_and_is_not_begun_again(endpoint: Any) -> None:
    endpoint.drops("hel").streams("hel", "lo")
    pieces: list[str] = []

    with pytest.raises(ModelError) as caught:
        await complete(_call(endpoint), pieces.append, patience=HASTE)

    assert (len(endpoint.asked), caught.value.is_fatal) == (1, False)


async def test_a_pause_is_told_with_its_reason_and_its_end(endpoint: Any) -> None:
    endpoint.fails(429, "slow down", retry_after="0").fails(503).says("hello")
    waits: list[str] = []

    await complete(_call(endpoint), patience=HASTE, on_wait=lambda wait: waits.append(wait.sentence()))

    assert re.fullmatch(r"rate-limited until \d\d:\d\d:\d\d, then attempt 2 of 3: .*slow down.*", waits[0])
    assert waits[1].startswith("server error until")


async def test_a_field_that_a_strict_endpoint_refuses_is_left_out_from_then_on(endpoint: Any) -> None:
    endpoint.fails(422, "extra_forbidden: body.seed").says("hello").says("again")

    await complete(_call(endpoint, seed=4))
    await complete(_call(endpoint, seed=5))

    assert ["seed" in asked for asked in endpoint.asked] == [True, False, False]


async def test_a_field_that_a_person_asked_for_is_not_left_out(endpoint: Any) -> None:
    endpoint.fails(400, "Unsupported parameter: temperature")

    with pytest.raises(ModelError, match="Unsupported parameter: temperature"):
        await complete(_call(endpoint, temperature=0.5))

    assert len(endpoint.asked) == 1


async def test_a_silent_endpoint_times_out(endpoint: Any) -> None:
    held = endpoint.stalls()

    with pytest.raises(ModelError) as caught:
        await complete(_call(endpoint, timeout_s=0.05), patience=Patience(n_attempts=1))

    held.set()
    assert caught.value.kind == "timeout"


async def test_cancelling_the_caller_cancels_the_call(endpoint: Any) -> None:
    held = endpoint.stalls()
    task = asyncio.create_task(complete(_call(endpoint)))
    while not endpoint.asked:
        await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    held.set()


async def test_a_key_never_shows_in_an_error(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "a-very-secret-key")
    endpoint.fails(400, "cannot use a-very-secret-key with sk-abcdefghijklmnopqrstuvwxyz123456")

    with pytest.raises(ModelError) as caught:
        await complete(_call(endpoint))

    assert "[HOSTED_VLLM_API_KEY] with [secret]" in str(caught.value)


def test_calls_from_many_threads_share_one_loop(endpoint: Any) -> None:
    for number in range(8):
        endpoint.says(f"hello {number}")
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(asyncio.run(complete(_call(endpoint))).text)) for _ in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sorted(texts) == [f"hello {number}" for number in range(8)]
    assert sum(thread.name == "evaldesk-llm" for thread in threading.enumerate()) == 1


class _RaisedError(Exception):
    def __init__(self, message: str, status_code: int = 0, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.litellm_response_headers = headers or {}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert failure_of(_RaisedError("slow down", 429, headers), MODEL).retry_after_s == seconds


def test_a_provider_may_forbid_another_attempt() -> None:
    failure = failure_of(_RaisedError("down for good", 503, {"x-should-retry": "false"}), MODEL)

    assert (failure.kind, failure.is_passing) == ("server_error", False)


def test_a_fault_in_the_library_is_not_tried_again() -> None:
    assert not failure_of(_RaisedError("No module named 'mcp'", 500), MODEL).is_passing


def test_waits_double_up_to_the_longest() -> None:
    patience = Patience(n_attempts=9, first_wait_s=1, longest_wait_s=5)
    failure = ModelFailure("server_error", "", is_passing=True)

    waits = [patience.wait_s(n, failure, lambda: 1.0) for n in range(1, 6)]

    assert waits == [1, 2, 4, 5, 5]
    assert patience.wait_s(1, failure, lambda: 0.0) == 0.5
    assert patience.wait_s(9, failure, lambda: 0.0) is None


def _stream(*deltas: Mapping[str, Any]) -> Answer:
    return Answer(stream=chunks(*({"role": "assistant", **delta} for delta in deltas)))
