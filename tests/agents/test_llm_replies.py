"""What a model answers, through LiteLLM and straight from its endpoint alike."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.agents.model_calls import HASTE, MESSAGES, MODEL, TOOL, call_of, streamed

from evaldesk.errors import ModelError
from evaldesk.llm import complete

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("client")]


async def test_a_reply_of_an_unpriced_model_has_text_and_usage(endpoint: Any) -> None:
    endpoint.says("hello")

    reply = await complete(call_of(endpoint))

    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("hello", (), "stop")
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (11, 5)
    assert (reply.usage.model, reply.usage.cost, reply.usage.n_attempts) == (MODEL, None, 1)


async def test_only_fields_of_openai_reach_the_endpoint(endpoint: Any) -> None:
    endpoint.says("hello")

    await complete(call_of(endpoint, tools=[TOOL], temperature=0.5, max_tokens=9, seed=4))

    assert endpoint.asked == [
        {
            "model": "small",
            "messages": [*MESSAGES],
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

    reply = await complete(call_of(endpoint, model=model, tools=[TOOL]))

    found = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
    assert found == [("c1", "roll_die", '{"sides": 6}'), ("c2", "roll_die", "{broken")]


async def test_a_streamed_reply_sends_its_text_in_pieces(endpoint: Any) -> None:
    endpoint.answers.append(streamed({"content": "hel"}, {"content": "lo"}))
    pieces: list[str] = []

    reply = await complete(call_of(endpoint), pieces.append)

    assert pieces == ["hel", "lo"]
    assert (reply.text, reply.usage.tokens_in, reply.usage.tokens_out) == ("hello", 11, 5)
    assert endpoint.asked[0]["stream_options"] == {"include_usage": True}


async def test_streamed_tool_calls_are_merged(endpoint: Any) -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "roll_die", "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": text}} for text in ('{"sides"', ": 6}")]
    endpoint.answers.append(streamed(*({"tool_calls": [piece]} for piece in (first, *pieces))))

    reply = await complete(call_of(endpoint, tools=[TOOL]), lambda _: None)

    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [("c1", "roll_die", '{"sides": 6}')]


@pytest.mark.parametrize(
    "raw", [b'{"choices": [{"mess', b"<html>The gateway says hello</html>", b"{}", b'{"choices": []}', b"", b"null"]
)
@pytest.mark.parametrize("model", ["hosted_vllm/small", "openai/small"])
async def test_an_answer_without_choices_is_an_error_and_no_empty_reply(
    endpoint: Any, raw: bytes, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")
    for _ in range(3):
        endpoint.gives(raw)

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint, model=model), retry_policy=HASTE)

    assert not caught.value.is_fatal
    assert "tried 3 times" in str(caught.value)


async def test_an_interrupted_stream_is_an_error_and_not_retried(endpoint: Any) -> None:
    endpoint.drops("hel").streams("hel", "lo")
    pieces: list[str] = []

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint), pieces.append, retry_policy=HASTE)

    assert (len(endpoint.asked), caught.value.is_fatal) == (1, False)


async def test_cancelling_the_caller_cancels_the_call(endpoint: Any) -> None:
    held = endpoint.stalls()
    task = asyncio.create_task(complete(call_of(endpoint)))
    while not endpoint.asked:
        await asyncio.sleep(0.001)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    held.set()


def test_calls_from_many_threads_share_one_loop(endpoint: Any) -> None:
    for number in range(8):
        endpoint.says(f"hello {number}")
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(asyncio.run(complete(call_of(endpoint))).text)) for _ in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(texts) == [f"hello {number}" for number in range(8)]
    assert sum(thread.name == "evaldesk-llm" for thread in threading.enumerate()) == 1
