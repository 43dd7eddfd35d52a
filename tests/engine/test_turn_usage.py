"""What a turn adds to the usage that an agent tells: attempts, answers from caches, a price of one's own."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from evaldesk.engine.worker.turn import OpenTurn
from evaldesk.llm.failures import ModelFailure
from evaldesk.llm.retry_events import HttpCall, RetryWait
from evaldesk.model import Event, ModelOptions, Session, Usage
from evaldesk.pages.conversation import event_text

SPENT = Usage("some/model", tokens_in=1_000_000, tokens_out=2_000_000)
WAIT = RetryWait(ModelFailure("rate_limit", "some/model: slow down"), 1, 5, datetime(2026, 11, 22, tzinfo=UTC))


@pytest.fixture
def turn() -> OpenTurn:
    options = ModelOptions(n_retries=4, price_in=0.5, price_out=1.5)
    return OpenTurn(Session("s", model_options=options), "hi", lambda: 0.0, None)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        pytest.param(SPENT, 3.5, id="unknown"),
        pytest.param(replace(SPENT, cost=0.25), 0.25, id="told-by-the-agent"),
        pytest.param(replace(SPENT, cost=0.0, is_replayed=True), 0.0, id="replayed"),
        pytest.param(Usage("some/model"), None, id="no-tokens-told"),
        pytest.param(replace(SPENT, model="demo/dice"), None, id="scripted"),
    ],
)
def test_a_price_of_the_settings_counts_where_no_other_is_known(
    turn: OpenTurn, usage: Usage, cost: float | None
) -> None:
    turn.take(Event("usage", usage=usage))

    assert [usage.cost for usage in turn.record("answered").usages] == [cost]


def test_pauses_are_told_as_they_begin_and_counted_once(turn: OpenTurn) -> None:
    turn.note_pause(WAIT, is_counted=False)
    turn.note_pause(WAIT, is_counted=False)
    turn.take(Event("usage", usage=SPENT))
    turn.note_pause(WAIT, is_counted=True)
    turn.take(Event("usage", usage=replace(SPENT, n_attempts=2)))

    record = turn.record("answered")
    assert [usage.n_attempts for usage in record.usages] == [3, 2]
    assert [event.kind for event in record.events] == ["user_message", "log", "log", "usage", "log", "usage"]


def test_an_answer_from_a_cache_marks_one_usage(turn: OpenTurn) -> None:
    turn.note_cached_reply()
    turn.take(Event("usage", usage=SPENT))
    turn.take(Event("usage", usage=SPENT))

    assert [(usage.is_replayed, usage.cost) for usage in turn.record("answered").usages] == [(True, 0.0), (False, 3.5)]


def seen(tokens_in: int, tokens_out: int) -> HttpCall:
    answer = {"model": "other", "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}}
    return HttpCall("/v1/chat/completions", b'{"model": "other"}', json.dumps(answer).encode(), 5.0)


@pytest.mark.parametrize(
    ("told", "answers", "whole", "added"),
    [
        pytest.param([(7, 3)], [(7, 3)], 0, [], id="told"),
        pytest.param([(7, 3)], [(8, 3)], 0, [], id="told with other tokens"),
        pytest.param([(7, 3)], [(7, 3), (1, 1)], 0, [(1, 1)], id="one that is not told"),
        pytest.param([(7, 3)], [(7, 3), (7, 3)], 0, [(7, 3)], id="one that is not told and alike"),
        pytest.param([(7, 3)], [(1, 1)], 1, [(1, 1)], id="one of ours is told"),
        pytest.param([(7, 3)], [(7, 3)], 1, [(7, 3)], id="one of ours is told and alike"),
        pytest.param([], [(1, 1), (2, 2)], 0, [(1, 1), (2, 2)], id="none is told"),
    ],
)
def test_a_call_that_the_agent_does_not_tell_is_added_once(
    turn: OpenTurn, told: Any, answers: Any, whole: int, added: Any
) -> None:
    for _ in range(whole):
        turn.note_reply()
    for tokens in answers:
        turn.note_request()
        turn.note_answer(seen(*tokens))
    for tokens_in, tokens_out in told:
        turn.take(Event("usage", usage=Usage("some/model", tokens_in=tokens_in, tokens_out=tokens_out)))
    turn.close()

    found = turn.record("answered").usages
    assert [(usage.tokens_in, usage.tokens_out) for usage in found] == [*told, *added]
    assert {usage.model for usage in found[len(told) :]} <= {"other"}


def test_a_call_that_is_not_answered_counts_for_nothing_and_one_under_way_is_at_least_so(turn: OpenTurn) -> None:
    turn.note_request()
    turn.note_failed_request()
    turn.note_request()
    turn.close()

    assert [(usage.model, usage.is_least, usage.cost) for usage in turn.record("answered").usages] == [
        ("unknown", True, None)
    ]


@pytest.mark.parametrize("answer", [b"", b"no JSON", b'{"usage": {"prompt_tokens": -1}}', b'{"choices": 7}', b"[]"])
def test_an_answer_that_cannot_be_read_is_at_least_a_call(turn: OpenTurn, answer: bytes) -> None:
    turn.note_request()
    turn.note_answer(HttpCall("/v1/chat/completions", b"[]", answer, 5.0))
    turn.close()

    assert [usage.is_least for usage in turn.record("answered").usages] == [True]


def test_tokens_are_shown_with_those_of_the_cache_and_of_reasoning() -> None:
    used = Usage("m", tokens_in=1200, tokens_out=80, tokens_cached=1000, tokens_reasoning=64)

    assert event_text(Event("usage", usage=used)) == "m: 1,200 tokens in (1,000 cached), 80 out (64 reasoning)"
    assert event_text(Event("usage", usage=Usage("m", is_least=True))) == "m: at least 0 tokens in, 0 out"
