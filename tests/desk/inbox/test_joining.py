"""Conversations out of spans: any order and split gives the same, sessions join traces, odd spans harm nobody."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.spans_of_agents import BEGAN_NS, id_of, pairs, request, span, turn_spans

from evaldesk.desk.inbox.joining import join_new, joined_conversations, received_span, session_keys, twin_group_of
from evaldesk.model.inbox import Conversation, ReceivedSpan
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.store import Store
from evaldesk.store.inbox.conversations import JoinedConversation
from evaldesk.store.inbox.spans import TraceGroup, packed_batch
from evaldesk.transcripts.otel.spans import log_spans_in, spans_in

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def received(raw: Any) -> list[ReceivedSpan]:
    document = Document(raw, source="spans")
    return [received_span(each, str) for each in spans_in(JsonPosition(document), raw)]


def join(spans: list[ReceivedSpan]) -> list[JoinedConversation]:
    n_spans = {each.trace_id: 0 for each in spans}
    return [*joined_conversations(TraceGroup(1, "shop", spans, n_spans, NOW, 0, 0))]


def two_turns(**resource: str) -> list[ReceivedSpan]:
    first = turn_spans("Train to Graz?", "On Friday.", session="s1", tool="search", at_s=0)
    second = turn_spans("Yes, book it.", "Done.", session="s1", at_s=60)
    return received(request([*first, *second], **resource))


def test_a_session_is_one_conversation_with_its_values() -> None:
    (found,) = join(two_turns(service__name="shop", service__version="1.5"))

    own = found.conversation
    assert [turn.query for turn in found.result.transcript.turns] == ["Train to Graz?", "Yes, book it."]
    assert (own.name, own.agent, own.service, own.release) == ("s1", "clerk", "shop", "1.5")
    assert (own.n_turns, own.n_calls, own.tools, own.tokens, own.n_spans) == (2, 1, ("search",), 36, 6)
    assert own.first_words == "Train to Graz?"
    assert own.began_at == datetime.fromtimestamp(BEGAN_NS / 1e9, UTC)
    assert (own.has_error, own.is_whole, own.is_eval, own.feedback) == (False, True, False, None)


def test_the_first_words_are_those_of_the_first_message_with_words() -> None:
    silent = turn_spans(" ", "Hello.", session="s1", at_s=0)
    (found,) = join(received(request([*silent, *turn_spans("Train to Graz?", "On Friday.", session="s1", at_s=60)])))

    assert [turn.query.strip() for turn in found.result.transcript.turns] == ["", "Train to Graz?"]
    assert found.conversation.first_words == "Train to Graz?"


def test_any_order_of_the_spans_gives_the_same_conversation() -> None:
    spans = [*two_turns(), *received(request(turn_spans("Other?", "No.", session="s2", tool="look")))]
    wanted = join(spans)
    chance = random.Random(7)

    for _ in range(1000):
        shuffled = chance.sample(spans, len(spans)) + chance.sample(spans, chance.randrange(3))
        assert join(shuffled) == wanted


def test_any_split_into_requests_gives_the_same_conversation(tmp_path: Path) -> None:
    spans = two_turns()
    chance = random.Random(7)
    wanted: Conversation | None = None
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        with Store.open(tmp_path / str(number) / "evaldesk.db", clock=lambda: NOW) as store:
            rest = chance.sample(spans, len(spans))
            while rest:
                n = chance.randrange(1, 4)
                some, rest = rest[:n], rest[n:]
                for each in some:
                    store.inbox_spans.receive([packed_batch("shop", each.trace_id, [each])])
                if chance.random() < 0.5:
                    join_new(store, 0)
            while join_new(store, 0):
                pass
            (found,) = store.inbox.list().items
            content = store.inbox.content(found.id)
        assert [turn.query for turn in content.transcript.turns] == ["Train to Graz?", "Yes, book it."]
        found = replace(found, id=0, n_bytes=0)
        wanted = wanted or found
        assert found == wanted


def test_a_span_that_comes_twice_is_counted_once_whatever_comes_first() -> None:
    spans = two_turns()
    other = replace(spans[1], end_ms=spans[1].end_ms + 5)

    assert join([*spans, other]) == join([other, *spans])
    assert join([*spans, other])[0].conversation.n_spans == 6


def test_services_that_use_one_trace_id_do_not_mix_unless_they_call_each_other() -> None:
    one = received(request(turn_spans("One?", "1", trace="t"), service__name="a"))
    two = received(request(turn_spans("Two?", "2", trace="t"), service__name="b"))
    called = [replace(each, span_id="ab" * 8, parent_id=one[0].span_id) if not each.parent_id else each for each in two]

    assert sorted(each.conversation.first_words for each in join([*one, *two])) == ["One?", "Two?"]
    assert {each.conversation.name for each in join([*one, *two])} == {id_of("t", 16)}
    assert len(join([*one, *called])) == 1


def test_traffic_that_evaldesk_plays_is_marked() -> None:
    (found,) = join(two_turns(evaldesk__played="true"))

    assert found.conversation.is_eval


def test_a_conversation_that_stops_after_a_call_is_not_whole() -> None:
    spans = received(request(turn_spans("Train?", "Friday", tool="search")))

    (found,) = join([each for each in spans if each.name in ("ask", "tool")])

    assert not found.conversation.is_whole


def test_a_user_is_known_by_a_hash_alone() -> None:
    raw = request(turn_spans("Hi", "Hello", attributes={"user.id": "anna@example.org"}))
    document = Document(raw, source="spans")

    spans = [received_span(each, lambda _: "f00d") for each in spans_in(JsonPosition(document), raw)]

    assert "anna" not in repr(spans)
    assert join(spans)[0].conversation.user_hash == "f00d"


@pytest.mark.parametrize(
    ("values", "feedback"),
    [
        ({"gen_ai.evaluation.score.label": "thumbs_down"}, -1.0),
        ({"gen_ai.evaluation.score.value": 1}, 1.0),
        ({"gen_ai.evaluation.score.value": 0.25}, -0.5),
        ({"gen_ai.evaluation.score.value": -3}, -1.0),
        ({}, None),
    ],
)
def test_feedback_comes_with_an_event_or_a_log_record(values: dict[str, Any], feedback: float | None) -> None:
    attributes = {"gen_ai.evaluation.name": "user_feedback", **values}
    on_span = turn_spans("Hi", "Hello", trace="t")
    on_span[0]["events"] = [{"name": "gen_ai.evaluation.result", "attributes": pairs(attributes)}]
    record = {
        "traceId": id_of("t", 16),
        "spanId": on_span[0]["spanId"],
        "eventName": "gen_ai.evaluation.result",
        "timeUnixNano": BEGAN_NS,
        "attributes": pairs(attributes),
    }
    logs: Any = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    document = Document(logs, source="records")
    log_spans = [received_span(each, str) for each in log_spans_in(JsonPosition(document), logs)]

    plain = received(request(turn_spans("Hi", "Hello", trace="t")))

    assert join(received(request(on_span)))[0].conversation.feedback == feedback
    assert join([*log_spans, *plain]) == join([*plain, *log_spans])
    assert join([*log_spans, *plain])[0].conversation.feedback == feedback


def test_a_clock_of_another_century_does_not_move_a_conversation() -> None:
    spans = [replace(each, start_ms=-5.0, end_ms=9e17) for each in received(request(turn_spans("Hi", "Hello")))]

    (found,) = join(spans)

    assert found.conversation.began_at == found.conversation.ended_at == NOW


def odd_spans() -> Iterator[Any]:
    whole = turn_spans("Hi", "Hello", tool="t")
    yield pytest.param(whole[1:], id="no-root")
    yield pytest.param([*whole, {**whole[1], "parentSpanId": whole[1]["spanId"]}], id="its-own-parent")
    cut = [{"key": "gen_ai.input.messages", "value": {"stringValue": '[{"role": "user", "par'}}]
    yield pytest.param([{**whole[1], "attributes": [*whole[1]["attributes"], *cut]}], id="truncated-json")
    html = "<script>alert(1)</script>\x1b[31m\u0000\u202e"
    yield pytest.param(turn_spans(html, html), id="html-and-ansi")
    nan = span(id_of("n", 16), "chat", "", BEGAN_NS, 1, {"gen_ai.usage.cost": float("nan"), "gen_ai.prompt": "x"})
    yield pytest.param([nan], id="nan")
    yield pytest.param(turn_spans("x" * 10_000_000, "y"), id="10-mb")
    yield pytest.param([span(id_of("d", 16), f"s{n}", f"s{n - 1}", BEGAN_NS, 1, {}) for n in range(3000)], id="deep")


@pytest.mark.parametrize("spans", [*odd_spans()])
def test_odd_spans_do_not_stop_those_of_others(spans: list[Any], tmp_path: Path) -> None:
    with Store.open(tmp_path / "evaldesk.db", clock=lambda: NOW) as store:
        for each in [*received(request(spans)), *received(request(turn_spans("Well?", "Yes.", trace="good")))]:
            store.inbox_spans.receive([packed_batch("shop", each.trace_id, [each])])

        while join_new(store, 0):
            pass

        assert "Well?" in {each.first_words for each in store.inbox.list().items}
        assert not store.inbox_spans.has_unjoined()


def test_twins_have_the_same_words() -> None:
    assert twin_group_of("Train to Prague, next Friday!") == twin_group_of("train to  prague next friday")
    assert twin_group_of("Train to Prague") != twin_group_of("Train to Graz")
    assert twin_group_of("?!") == ""


def test_a_session_is_named_by_service_and_attribute() -> None:
    spans = received(request(turn_spans("Hi", "Hello", attributes={"langfuse.session.id": "s9"}), service__name="web"))

    assert [(each.service, each.session) for each in session_keys("shop", spans)] == [("web", "s9")]
    assert json.dumps([each.source for each in session_keys("shop", spans)]) == '["shop"]'


def n_calls_of_joining(n: int) -> int:
    """The calls that it takes to join `n` spans of one trace, each of a service of its own."""
    spans = two_turns()[:1] * n
    own = [
        replace(span, span_id=f"{at:016x}", parent_id="f" * 16, attributes={"service.name": f"shop-{at}"})
        for at, span in enumerate(spans)
    ]
    n_calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    sys.setprofile(count)
    try:
        join(own)
    finally:
        sys.setprofile(None)
    return n_calls


def test_a_trace_of_many_services_takes_no_more_than_its_share() -> None:
    assert n_calls_of_joining(400) < 3 * n_calls_of_joining(200)
