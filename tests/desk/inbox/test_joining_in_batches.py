"""Joining in steps: any step and any bound gives the same conversations, a kill loses nothing, memory has a bound."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select
from tests.spans_of_agents import pairs, request, turn_spans

from evaldesk.desk.inbox import joining
from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.joining import join_new, received_span
from evaldesk.model.inbox import ReceivedSpan
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.store import Store
from evaldesk.store.inbox import spans as span_store
from evaldesk.store.inbox.spans import SpanBatch, TraceKey, packed_batch
from evaldesk.store.tables import columns
from evaldesk.store.tables.inbox import CONVERSATION, MARK, SESSION, SPANS, TRACE
from evaldesk.transcripts.otel.spans import spans_in

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Killed(BaseException):
    """The process ends here."""


def received(raw: Any) -> list[ReceivedSpan]:
    document = Document(raw, source="spans")
    return [received_span(each, str) for each in spans_in(JsonPosition(document), raw)]


def batches() -> list[SpanBatch]:
    """A batch for each span of five conversations: of one, two and three traces, of two joined sessions, of none."""
    spans = [
        *turn_spans("Alone?", "Yes.", trace="alone"),
        *turn_spans("Train to Graz?", "On Friday.", session="s1", tool="search", at_s=0),
        *turn_spans("Book it.", "Done.", session="s1", at_s=60),
        *turn_spans("One", "1", session="s2", at_s=0),
        *turn_spans("Two", "2", session="s2", tool="look", at_s=60),
        *turn_spans("Three", "3", session="s2", at_s=120),
        *turn_spans("Left", "l", session="left", at_s=0),
        *turn_spans("Right", "r", session="right", at_s=60, trace="both"),
    ]
    bridge = turn_spans("Bridge", "b", session="left", trace="both", at_s=90)
    other = [{**each, "spanId": each["spanId"][::-1], "parentSpanId": ""} for each in bridge]
    transport = received(request([{**spans[0], "traceId": "ab" * 16, "attributes": [], "name": "GET /"}]))
    return [packed_batch("shop", each.trace_id, [each]) for each in [*received(request([*spans, *other])), *transport]]


def seen(store: Store) -> Sequence[Any]:
    """All that a person sees of the conversations, but for numbers that depend on the order of their coming."""
    items = store.inbox.list(limit=1000).items
    contents = {each.id: store.inbox.content(each.id) for each in items}
    found = [(replace(each, id=0, n_bytes=0), contents[each.id].transcript, contents[each.id].usages) for each in items]
    return sorted(found, key=lambda each: (each[0].name, each[0].began_at))


def counted(store: Store) -> tuple[int, int, int]:
    """The numbers of spans, of traces and of marks."""
    with store._database.reading() as connection:
        n_spans = connection.scalar(select(func.sum(SPANS.c.n_spans)))
        n_traces = connection.scalar(select(func.count()).select_from(TRACE))
        n_marks = connection.scalar(select(func.count()).select_from(MARK))
    return n_spans or 0, n_traces or 0, n_marks or 0


def join_all(store: Store) -> int:
    n_steps = 0
    while join_new(store, 0):
        n_steps += 1
        assert n_steps < 100
    return n_steps


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []

    def make() -> Store:
        folder = tmp_path / str(len(opened))
        folder.mkdir()
        opened.append(Store.open(folder / "evaldesk.db", clock=lambda: NOW))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def wanted(open_store: Callable[[], Store]) -> Sequence[Any]:
    store = open_store()
    store.inbox_spans.receive(batches())
    join_all(store)
    found = seen(store)
    openings = [("Alone?", 1), ("Bridge", 1), ("Left", 1), ("One", 3), ("Right", 1), ("Train to Graz?", 2)]
    assert sorted((each[0].first_words, each[0].n_turns) for each in found) == openings
    return found


def bound(monkeypatch: pytest.MonkeyPatch, n_traces: int, n_spans: int, n_bytes: int) -> None:
    monkeypatch.setattr(span_store, "MOST_JOINED", n_traces)
    monkeypatch.setattr(span_store.SpanStore.unjoined, "__defaults__", (n_traces,))
    monkeypatch.setattr(span_store, "MOST_SPANS", n_spans)
    monkeypatch.setattr(span_store, "MOST_BYTES", n_bytes)
    monkeypatch.setattr(span_store, "_AT_ONCE", n_bytes)
    monkeypatch.setattr(columns, "MOST_VALUES", n_traces)
    monkeypatch.setattr(span_store, "MOST_VALUES", n_traces)


@pytest.mark.parametrize(
    "bounds", [(1000, 20_000, 2**24), (1, 1, 1), (2, 3, 500), (3, 1000, 10), (50, 4, 2**20)], ids=str
)
def test_any_order_and_any_bound_of_a_step_gives_the_same_conversations(
    bounds: tuple[int, int, int],
    wanted: Sequence[Any],
    open_store: Callable[[], Store],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound(monkeypatch, *bounds)
    chance = random.Random(str(bounds))

    for _ in range(5):
        store = open_store()
        waiting = chance.sample(batches(), len(batches()))
        while waiting:
            n = chance.randrange(1, len(waiting) + 1)
            store.inbox_spans.receive(waiting[:n])
            del waiting[:n]
            if chance.random() < 0.5:
                join_new(store, 0)
        join_all(store)

        assert seen(store) == wanted
        assert not store.inbox_spans.has_unjoined()


def test_a_kill_at_any_step_of_joining_loses_no_span_and_doubles_none(
    wanted: Sequence[Any], open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_left = 0

    def step(*_: object) -> None:
        nonlocal steps_left
        steps_left -= 1
        if steps_left == 0:
            raise Killed

    n_calls = n_kills = 0
    is_killed = True
    while is_killed:
        n_calls += 1
        assert n_calls < 200
        store, is_killed = open_store(), False
        index = store.inbox._index

        def put_in_steps(*values: Any, put_words: Callable[..., None] = index.put) -> None:
            step()
            put_words(*values)
            step()

        for some in (batches()[:9], batches()[9:]):  # the second part changes conversations that are there
            store.inbox_spans.receive(some)
            before = counted(store)
            steps_left = n_calls
            with monkeypatch.context() as patched:
                patched.setattr(index, "put", put_in_steps)
                event.listen(Engine, "before_cursor_execute", step)
                event.listen(Engine, "commit", step)
                try:
                    join_all(store)
                except Killed:
                    is_killed, n_kills = True, n_kills + 1
                finally:
                    event.remove(Engine, "before_cursor_execute", step)
                    event.remove(Engine, "commit", step)
            assert counted(store)[:2] == before[:2]

        join_all(store)

        assert seen(store) == wanted
        assert counted(store)[2] == sum(len(set(each[0].tools)) + len(each[0].tags) for each in wanted)
        for each in wanted:
            line = f'text:"{each[1].turns[-1].query}"'
            assert each[0].name in {found.name for found in store.inbox.list(parse_filter(line)).items}, n_calls
        store.close()
    assert n_kills > 20


def test_a_step_asks_the_database_as_often_for_many_traces_as_for_few(open_store: Callable[[], Store]) -> None:
    counts = []
    for n_sessions in (2, 60):
        store = open_store()
        spans = [
            each
            for number in range(n_sessions)
            for at_s in (0, 60)
            for each in turn_spans(f"Question {number}?", "Yes.", session=f"s{number}", tool="search", at_s=at_s)
        ]
        stored_spans = received(request(spans))
        store.inbox_spans.receive([packed_batch("shop", each.trace_id, [each]) for each in stored_spans])
        n_statements = 0

        def count(*_: object) -> None:
            nonlocal n_statements
            n_statements += 1

        event.listen(Engine, "before_cursor_execute", count)
        try:
            assert join_new(store, 0) == 2 * n_sessions
        finally:
            event.remove(Engine, "before_cursor_execute", count)
        counts.append(n_statements)
        assert store.inbox.count() == n_sessions

    # SQLite inserts conversations one by one, since it returns the ids of several in no order.
    assert counts[1] - counts[0] <= 58


def test_large_traces_are_read_one_after_the_other(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    monkeypatch.setattr(span_store, "MOST_BYTES", 250_000)
    for number in range(6):
        text = "".join(random.Random(number).choices("abcdef ", k=100_000))
        spans = received(request(turn_spans(f"{number} {text}", "Yes.", trace=f"t{number}")))
        store.inbox_spans.receive([packed_batch("shop", spans[0].trace_id, spans)])
    sizes: list[int] = []
    put = store.inbox.put

    def measured(groups: Any) -> None:
        sizes.append(sum(len(json.dumps(span.attributes)) for group, _ in groups for span in group.spans))
        put(groups)

    monkeypatch.setattr(store.inbox, "put", measured)

    n_steps = join_all(store)

    assert n_steps == 3
    assert max(sizes) <= 250_000
    assert sorted(each.first_words[0] for each in store.inbox.list().items) == [*"012345"]


def test_of_a_trace_above_its_bounds_the_first_spans_count_and_others_are_joined_as_well(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    monkeypatch.setattr(span_store, "MOST_BYTES", 10_000)
    monkeypatch.setattr(span_store, "MOST_OF_GROUP", 20_000)
    whole = turn_spans("Large?", "Yes.", trace="large")
    store.inbox_spans.receive([packed_batch("shop", each.trace_id, [each]) for each in received(request(whole))])
    for number in range(40):
        noise = {
            **whole[0],
            "spanId": f"{number + 1:016x}",
            "attributes": pairs({"http.url": "x" * 1000}),
            "name": "GET",
        }
        store.inbox_spans.receive([packed_batch("shop", noise["traceId"], received(request([noise])))])
    small = received(request(turn_spans("Small?", "Yes.", trace="small")))
    store.inbox_spans.receive([packed_batch("shop", small[0].trace_id, small)])

    join_all(store)

    found = {each.first_words: each for each in store.inbox.list().items}
    assert set(found) == {"Large?", "Small?"}
    assert 10 < found["Large?"].n_left_out < 35
    assert found["Large?"].n_left_out + found["Large?"].n_spans == 42
    assert found["Large?"].n_bytes > sum(len(each.data) for each in batches()[:2])
    assert not store.inbox_spans.has_unjoined()


def test_a_session_of_more_traces_than_a_step_holds_is_joined_to_its_end(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    bound(monkeypatch, 3, 6, 2**20)
    monkeypatch.setattr(joining, "MAX_SPANS", 8)
    for number in range(10):
        spans = received(request(turn_spans(f"Turn {number}", "Yes.", session="long", at_s=number)))
        store.inbox_spans.receive([packed_batch("shop", spans[0].trace_id, spans)])

    join_all(store)

    (found,) = store.inbox.list().items
    assert (found.n_turns, found.n_left_out) == (4, 12)
    assert not store.inbox_spans.has_unjoined()


def test_a_trace_that_is_removed_while_it_is_joined_comes_back_as_nothing(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.inbox_spans.receive(batches())
    keys = store.inbox_spans.unjoined(NOW + timedelta(seconds=1))
    traces = store.inbox_spans.spans_of(keys, 100)
    groups = store.inbox_spans.connect({key: [] for key in keys})
    with store._database.writing() as connection:
        span_store.remove_traces(connection, [(key.source, key.trace_id) for key in keys])

    assert [*store.inbox_spans.groups(groups, 100, traces)] == [[]]
    assert store.inbox_spans.connect({TraceKey("shop", "gone"): []}) == []
    with store._database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(SESSION)) == 0
        assert connection.scalar(select(func.count()).select_from(CONVERSATION)) == 0
