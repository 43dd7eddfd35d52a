"""The model calls of a trial are kept once each, whatever their messages are, and never without bounds."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.engine.worker.turn import OpenTurn
from evaldesk.llm.retry_events import HttpCall
from evaldesk.model import Prompt, Prompts, Session, Usage
from evaldesk.transcripts import prompt_writer as writing
from evaldesk.transcripts.model_exchanges import ModelRequest
from evaldesk.transcripts.prompt_writer import MAX_BYTES, MAX_CALLS, MAX_TEXT, CallPlace, PromptWriter
from evaldesk.wire import from_json, to_json

SPENT = Usage("some/model", tokens_in=11, tokens_out=5, duration_ms=20)
MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "content"]), st.text(max_size=8)), max_size=8)


def kept(*calls: Any, **more: Any) -> Prompts:
    writer = PromptWriter()
    for messages in calls:
        writer.add(CallPlace(0, 1.0), SPENT, ModelRequest(tuple(messages), **more), None)
    found = writer.prompts()
    assert found is not None
    return found


@given(st.lists(MESSAGES, min_size=1, max_size=12))
def test_every_call_is_read_as_it_was_sent_and_nothing_is_kept_twice(calls: list[Any]) -> None:
    prompts = kept(*calls)

    assert [[*prompts.messages(at)] for at in range(len(calls))] == calls
    assert len({to_json(part) for part in prompts.parts}) == len(prompts.parts)
    assert from_json(to_json(prompts), Prompts) == prompts


def test_a_conversation_of_many_calls_is_kept_in_the_size_of_its_messages() -> None:
    messages = [{"role": "user", "content": f"message {number} " + "x" * 200} for number in range(100)]

    prompts = kept(*(messages[: number + 1] for number in range(100)))

    assert len(to_json(prompts)) < 3 * len(to_json(messages))
    assert [call.n_kept for call in prompts.calls] == [*range(100)]


def test_agents_that_take_turns_go_on_from_their_own_calls() -> None:
    one, other = [{"role": "system", "content": "one"}], [{"role": "system", "content": "other"}]
    more = [{"role": "user", "content": "more"}]

    prompts = kept(one, other, one + more, other + more)

    assert [(call.base, call.n_kept, len(call.messages)) for call in prompts.calls] == [
        (-1, 0, 1),
        (-1, 0, 1),
        (0, 1, 1),
        (1, 1, 1),
    ]


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _deep(n: int) -> Any:
    value: Any = "bottom"
    for _ in range(n):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [Strange(), float("nan"), "\ud800", {"key\ud800": 1}, {1: 2}, _deep(5_000), {"image": "a" * 5_000_000}, b"bytes"],
    ids=["object", "nan", "surrogate", "surrogate key", "number as key", "deep", "long", "bytes"],
)
def test_a_message_of_any_shape_is_kept_as_plain_json(value: Any) -> None:
    prompts = kept([{"role": "user", "content": value}])

    assert len(to_json(prompts)) < 2 * MAX_TEXT
    assert from_json(to_json(prompts), Prompts) == prompts


def test_what_has_no_room_is_counted_and_the_rest_stays() -> None:
    long = [{"role": "user", "content": f"{number}" * 1000} for number in range(1000, 3000)]

    prompts = kept(*([each] for each in long))

    assert prompts.n_left_out > 0
    assert len(prompts.calls) + prompts.n_left_out == len(long)
    assert sum(len(to_json(part)) for part in prompts.parts) <= MAX_BYTES


def test_no_more_calls_are_kept_than_a_page_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_CALLS", 10)

    prompts = kept(*([] for _ in range(25)))

    assert (len(prompts.calls), prompts.n_left_out) == (10, 15)
    assert MAX_CALLS > 10


@given(st.lists(MESSAGES, max_size=4), st.lists(MESSAGES, min_size=1, max_size=4))
def test_calls_that_are_put_after_others_are_read_as_they_were_sent(first: list[Any], then: list[Any]) -> None:
    earlier = kept(*first, tools=["a"]) if first else None

    prompts = kept(*then, tools=["b"]).after(earlier)

    assert [[*prompts.messages(at)] for at in range(len(prompts.calls))] == [*first, *then]
    assert [prompts.part(call.tools) for call in prompts.calls] == [["a"]] * len(first) + [["b"]] * len(then)


def test_calls_of_many_threads_are_all_kept() -> None:
    writer = PromptWriter()

    def add(number: int) -> None:
        for at in range(50):
            sent = ModelRequest(({"role": "user", "content": f"{number}"}, {"role": "user"}))
            writer.add(CallPlace(0, at), SPENT, sent, None)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    prompts = writer.prompts()
    assert prompts
    assert len(prompts.calls) == 400
    assert {str(prompts.messages(at)[0]) for at in range(400)} == {
        str({"role": "user", "content": f"{number}"}) for number in range(8)
    }


def test_places_that_lead_nowhere_give_nothing() -> None:
    calls = (
        Prompt(0, 0, 0, "m", base=0, n_kept=5, messages=(7, -3)),
        Prompt(0, 0, 0, "m", base=2, n_kept=2),
        Prompt(0, 0, 0, "m", base=1, n_kept=9, messages=(0,)),
        Prompt(0, 0, 0, "m", base=-5, n_kept=-1, messages=(0,)),
    )
    prompts = Prompts(({"role": "user"},), calls)

    assert [prompts.messages(at) for at in (-1, 0, 1, 3, 4)] == [(), (None, None), (), ({"role": "user"},), ()]
    assert prompts.messages(2) == ({"role": "user"},)


def seen(**body: Any) -> HttpCall:
    answer = {"model": "small", "usage": {"prompt_tokens": 11, "completion_tokens": 5}}
    return HttpCall("/v1/chat/completions", json.dumps(body).encode(), json.dumps(answer).encode(), 5.0)


def test_a_turn_that_is_given_up_tells_the_calls_that_were_seen_once() -> None:
    writer = PromptWriter()
    turn = OpenTurn(Session("s"), "hi", lambda: 0.0, None, prompts=writer)
    turn.note_answer(seen(messages=[{"role": "user", "content": "hi"}]))

    turn.record("timed_out")
    turn.record("timed_out")
    turn.close()

    prompts = writer.prompts()
    assert prompts
    assert [call.tokens_in for call in prompts.calls] == [11]


@pytest.mark.parametrize("request_body", [b"", b"[1]", b"{", b'{"messages": 7, "system": [1]}', b"\xff", b"[" * 9999])
@pytest.mark.parametrize("answer", [b"", b"nothing", b"[]", b'{"choices": 3}', b'data: {"choices": [1]}\n\n'])
def test_a_call_in_any_shape_is_kept_with_what_came_back(request_body: bytes, answer: bytes) -> None:
    writer = PromptWriter()
    turn = OpenTurn(Session("s"), "hi", lambda: 0.0, None, prompts=writer)
    turn.note_answer(HttpCall("/v1/messages", request_body, answer, 5.0))
    turn.close()

    prompts = writer.prompts()
    assert prompts
    assert len(prompts.calls) == 1
    assert turn.record("answered").usages[0].is_least
