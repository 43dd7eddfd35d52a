"""What a turn adds to the usage that an agent tells: attempts, answers from caches, a price of one's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from evaldesk.engine.worker.turn import OpenTurn
from evaldesk.llm.failures import ModelFailure
from evaldesk.llm.retry_events import RetryWait
from evaldesk.model import Event, ModelOptions, Session, Usage

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
    turn.waits(WAIT, is_counted=False)
    turn.waits(WAIT, is_counted=False)
    turn.take(Event("usage", usage=SPENT))
    turn.waits(WAIT, is_counted=True)
    turn.take(Event("usage", usage=replace(SPENT, n_attempts=2)))

    record = turn.record("answered")
    assert [usage.n_attempts for usage in record.usages] == [3, 2]
    assert [event.kind for event in record.events] == ["user_message", "log", "log", "usage", "log", "usage"]


def test_an_answer_from_a_cache_marks_one_usage(turn: OpenTurn) -> None:
    turn.was_cached()
    turn.take(Event("usage", usage=SPENT))
    turn.take(Event("usage", usage=SPENT))

    assert [(usage.is_replayed, usage.cost) for usage in turn.record("answered").usages] == [(True, 0.0), (False, 3.5)]
