"""Answers that keep to OpenAI's shape only nearly: both clients read the same out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.agents.endpoint import Answer, chunks, completion
from tests.agents.model_calls import HASTE, TOOL, call_of

from evaldesk.errors import ModelError
from evaldesk.llm import complete

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("client")]


def _changed(message: Mapping[str, Any], finish_reason: str = "stop") -> dict[str, Any]:
    body = completion("")
    body["choices"][0] |= {"message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return body


def _function(arguments: object, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "roll_die", "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "hello", "reasoning_content": "well"}, "hello"),
        ({"content": "<think>well</think>hello"}, "hello"),
        ({"content": None}, ""),
    ],
)
async def test_thoughts_are_no_part_of_the_answer(endpoint: Any, message: Mapping[str, Any], text: str) -> None:
    endpoint.answers.append(Answer(_changed(message)))

    reply = await complete(call_of(endpoint))

    assert reply.text == text


async def test_arguments_may_come_as_an_object_and_calls_without_their_reason(endpoint: Any) -> None:
    calls = [_function({"sides": 6}, id="c1"), _function("", id="c2")]
    endpoint.answers.append(Answer(_changed({"content": None, "tool_calls": calls})))

    reply = await complete(call_of(endpoint, tools=[TOOL]))

    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("c1", '{"sides": 6}'), ("c2", "{}")]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("said", "reason"),
    [("length", "length"), ("max_tokens", "length"), ("content_filter", "content_filter"), ("eos", "stop")],
)
async def test_reasons_have_one_word_each(endpoint: Any, said: str, reason: str) -> None:
    endpoint.answers.append(Answer(_changed({"content": "hello"}, said)))

    reply = await complete(call_of(endpoint))

    assert reply.finish_reason == reason


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([_function('{"a"', index=0, id="c1"), _function(": 1}", index=0)], [("c1", '{"a": 1}')]),
        (
            [_function("{}", index=0, id="c1"), _function("{}", index=1, id="c2")],
            [("c1", "{}"), ("c2", "{}")],
        ),
    ],
)
async def test_streamed_calls_keep_their_order(
    endpoint: Any, parts: Sequence[Mapping[str, Any]], calls: Sequence[tuple[str, str]]
) -> None:
    endpoint.answers.append(Answer(stream=chunks(*({"role": "assistant", "tool_calls": [part]} for part in parts))))

    reply = await complete(call_of(endpoint, tools=[TOOL]), lambda _: None)

    assert [(call.id, call.arguments) for call in reply.tool_calls] == calls


async def test_an_error_in_a_good_status_is_an_error(endpoint: Any) -> None:
    for _ in range(3):
        endpoint.answers.append(Answer({"error": {"message": "out of memory", "code": 500}}))

    with pytest.raises(ModelError, match="out of memory"):
        await complete(call_of(endpoint), retry_policy=HASTE)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("This model's maximum context length is 4096 tokens", "context_window"),
        ("content_policy_violation: not this", "content_policy"),
    ],
)
async def test_context_window_and_content_policy_errors_are_distinguished(
    endpoint: Any, message: str, kind: str
) -> None:
    endpoint.fails(400, message)

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint), retry_policy=HASTE)

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == (kind, False, 1)
