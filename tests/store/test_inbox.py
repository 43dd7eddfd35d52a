"""The inbox on both engines: received spans, groups of traces, conversations by conditions, labels, draws, removal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.errors import NotFoundError
from evaldesk.model import Transcript, TrialResult, TurnRecord
from evaldesk.model.inbox import VERDICT, Conversation, DrawStratum, InboxScore, ReceivedSpan
from evaldesk.store import Store
from evaldesk.store.inbox import conversations
from evaldesk.store.inbox.conversations import JoinedConversation
from evaldesk.store.inbox.spans import GONE, SessionKey, SpanBatch, TraceGroup, TraceKey, packed_batch
from evaldesk.store.tables.inbox import SESSION, SPANS, TRACE
from evaldesk.store.word_index import INBOX, Seen

from .conftest import Clock, select_rows


def batch(trace_id: str, *names: str, source: str = "shop") -> SpanBatch:
    spans = [ReceivedSpan(name, trace_id, f"{trace_id}-{name}", "", 0.0, 1.0, {"a": name}) for name in names]
    return packed_batch(source, trace_id, spans)


def group_of(store: Store, group_id: int) -> TraceGroup | None:
    return next((group for some in store.inbox_spans.groups([group_id], 100) for group in some), None)


def put(store: Store, clock: Clock, name: str, **values: Any) -> int:
    """Store a conversation of one trace, which has its name; gives its id."""
    store.inbox_spans.receive([batch(name, "chat")])
    (group_id,) = store.inbox_spans.connect({TraceKey("shop", name): []})
    group = group_of(store, group_id)
    assert group is not None
    join(store, group, conversation(clock, name, **values))
    return store.inbox.list().items[0].id if not values.get("is_eval") else 0


def join(store: Store, group: TraceGroup, *own: Conversation, text: str = "", query: str = "Hello") -> None:
    result = TrialResult(0, 0, 0, "finished", "unscored", transcript=Transcript((TurnRecord(query),)))
    traces = frozenset(group.n_spans)
    store.inbox.put([(group, [JoinedConversation(each, result, traces, text or each.first_words) for each in own])])


def conversation(clock: Clock, name: str, **values: Any) -> Conversation:
    usual: dict[str, Any] = {
        "source": "shop",
        "service": "web",
        "name": name,
        "agent": "clerk",
        "release": "1.4",
        "began_at": clock.now,
        "ended_at": clock.now,
        "last_at": clock.now,
        "duration_ms": 1500.0,
        "n_turns": 2,
        "n_calls": 1,
        "n_spans": 1,
        "tokens": 10,
        "cost": 0.01,
        "error": "",
        "first_words": f"Where is my order {name}?",
        "tools": ("search",),
        "tags": ("prod",),
        "user_hash": "",
        "feedback": None,
        "twin_group": name,
        "is_whole": True,
        "is_eval": False,
    }
    return Conversation(**usual | values)


def test_received_spans_are_read_back_in_order(store: Store) -> None:
    store.inbox_spans.receive([batch("t1", "a", "b"), batch("t2", "c")])
    store.inbox_spans.receive([batch("t1", "d")])

    spans = store.inbox_spans.spans_of([TraceKey("shop", "t1"), TraceKey("shop", "t2")], 100)

    assert [span.name for span in spans[TraceKey("shop", "t1")].spans] == ["a", "b", "d"]
    assert [span.attributes for span in spans[TraceKey("shop", "t2")].spans] == [{"a": "c"}]
    assert [(each.name, each.n_spans) for each in store.inbox_spans.sources()] == [("shop", 4)]


def test_sessions_connect_traces_whatever_comes_first(store: Store) -> None:
    one, two, three = (TraceKey("shop", name) for name in ("t1", "t2", "t3"))
    store.inbox_spans.receive([batch("t1", "a"), batch("t2", "b"), batch("t3", "c"), batch("t1", "z", source="other")])
    left, right = SessionKey("shop", "web", "s1"), SessionKey("shop", "web", "s2")

    store.inbox_spans.connect({one: [left], two: [right]})
    (group_id,) = store.inbox_spans.connect({three: [left, right]})
    group = group_of(store, group_id)

    assert group is not None
    assert sorted(span.name for span in group.spans) == ["a", "b", "c"]
    assert group.n_spans == {"t1": 1, "t2": 1, "t3": 1}
    assert {row.group_id for row in select_rows(store, SESSION.select())} == {group_id}


def test_spans_that_come_while_a_group_is_read_are_joined_next(store: Store, clock: Clock) -> None:
    store.inbox_spans.receive([batch("t1", "a")])
    (group_id,) = store.inbox_spans.connect({TraceKey("shop", "t1"): []})
    group = group_of(store, group_id)
    store.inbox_spans.receive([batch("t1", "b")])
    assert group is not None

    join(store, group, conversation(clock, "t1"))

    assert store.inbox_spans.unjoined(clock.now) == [TraceKey("shop", "t1")]


def test_an_addition_keeps_the_id_and_the_state_of_a_conversation(store: Store, clock: Clock) -> None:
    number = put(store, clock, "t1")
    store.inbox.set_state([number], "read")
    store.inbox.close_quiet(clock.now)
    store.inbox_spans.receive([batch("t1", "late")])
    (group_id,) = store.inbox_spans.connect({TraceKey("shop", "t1"): [SessionKey("shop", "web", "s1")]})
    group = group_of(store, group_id)
    assert group is not None

    join(store, group, conversation(clock, "s1", n_turns=3))

    (now,) = store.inbox.list().items
    assert (now.id, now.name, now.n_turns, now.state, now.ending) == (number, "s1", 3, "read", "open")


def test_a_conversation_that_no_span_tells_of_goes_unless_it_was_read(store: Store, clock: Clock) -> None:
    store.inbox_spans.receive([batch("t1", "a")])
    (group_id,) = store.inbox_spans.connect({TraceKey("shop", "t1"): []})
    group = group_of(store, group_id)
    assert group is not None
    join(store, group, conversation(clock, "one"), conversation(clock, "two"))
    one = next(each.id for each in store.inbox.list().items if each.name == "one")
    store.inbox.label(one, "jo", "failed", "")

    join(store, replace(group, n_spans={}), conversation(clock, "three"))

    assert {each.name for each in store.inbox.list().items} == {"one", "three"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        pytest.param("error", "b", id="error"),
        pytest.param("not error", "ac", id="not-error"),
        pytest.param("feedback<0", "b", id="feedback"),
        pytest.param("not feedback<0", "ac", id="not-feedback"),
        pytest.param("tool:refund", "c", id="tool"),
        pytest.param("not tool:search", "c", id="not-tool"),
        pytest.param("tag:prod", "abc", id="tag"),
        pytest.param("turns>=5", "c", id="turns"),
        pytest.param("turns!=6", "ab", id="not-so-many-turns"),
        pytest.param("cost>0.1", "a", id="cost"),
        pytest.param("not cost>0.1", "bc", id="not-cost-of-unknown-cost"),
        pytest.param("latency>20s", "b", id="latency"),
        pytest.param("release:1.5", "c", id="release"),
        pytest.param('text:"ORDER a"', "a", id="text"),
        pytest.param("not text:order", "", id="not-text"),
        pytest.param("since:1h", "bc", id="since"),
        pytest.param("until:1h", "a", id="until"),
        pytest.param("no-case", "bc", id="no-case"),
        pytest.param("not no-case", "a", id="of-a-case"),
        pytest.param("state:dropped", "b", id="state"),
        pytest.param("error tool:search", "b", id="two"),
        pytest.param("", "abc", id="any"),
    ],
)
@pytest.mark.parametrize("most", [20_000, 0], ids=["listed", "asked"])
def test_a_filter_finds_conversations(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, line: str, names: str, most: int
) -> None:
    """Also where more conversations have a word, a tool or a tag than are listed."""
    monkeypatch.setattr(conversations, "MOST_NAMED", most)
    monkeypatch.setattr(conversations, "FIRST_PAGE", 1)
    put(store, clock, "a", cost=0.2)
    clock.move(hours=2)
    b = put(store, clock, "b", has_error=True, feedback=-1.0, duration_ms=30_000.0, cost=None)
    store.inbox.set_state([b], "dropped")
    clock.move(seconds=1)
    put(store, clock, "c", tools=("refund",), n_turns=6, release="1.5")
    put(store, clock, "d", is_eval=True)
    conditions, twins = parse_filter(line), {"a", *map(str, range(1000))}

    found = store.inbox.list(conditions, case_twins=twins)

    assert {each.name for each in found.items} == {*names}
    assert store.inbox.count(conditions, case_twins=twins) == len(names)
    assert len(store.inbox.candidates(conditions, case_twins=twins)) == len(names)


@pytest.mark.parametrize("most", [20_000, 100], ids=["listed", "asked"])
def test_a_word_of_most_conversations_is_found_in_the_oldest(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(conversations, "MOST_NAMED", most)
    number = put(store, clock, "a")
    others = [(each, ["order"]) for each in range(number + 1, number + 6_000)]
    store.inbox._index.put(INBOX, Seen("inbox"), others)

    assert store.inbox.count(parse_filter("text:order")) == 1
    assert [each.id for each in store.inbox.list(parse_filter("text:order")).items] == [number]
    assert store.inbox.candidates(parse_filter("not text:order")) == []


def test_conversations_that_evaldesk_played_are_apart(store: Store, clock: Clock) -> None:
    put(store, clock, "user")
    put(store, clock, "played", is_eval=True)

    assert [each.name for each in store.inbox.list(is_eval=True).items] == ["played"]
    assert store.inbox.count(is_eval=True) == 1


@pytest.mark.parametrize("line", ["", "text:order", "tool:search"])
def test_pages_follow_each_other_without_a_gap(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(conversations, "MOST_NAMED", 2)
    monkeypatch.setattr(conversations, "FIRST_PAGE", 2)
    for index in range(7):
        put(store, clock, f"t{index}")
        clock.move(seconds=index % 2)

    names: list[str] = []
    conditions = parse_filter(line)
    page = store.inbox.list(conditions, limit=3)
    while True:
        names += [each.name for each in page.items]
        if page.following is None:
            break
        page = store.inbox.list(conditions, limit=3, after=page.following)

    assert len(names) == len(set(names)) == 7
    times = [store.inbox.list(parse_filter(f"text:{name}")).items[0].began_at for name in names]
    assert all(later >= earlier for later, earlier in pairwise(times))


def test_a_quiet_conversation_is_closed_or_cut_off(store: Store, clock: Clock) -> None:
    put(store, clock, "whole")
    put(store, clock, "half", is_whole=False)
    clock.move(minutes=11)
    put(store, clock, "young")

    n = store.inbox.close_quiet(clock.now - timedelta(minutes=10))

    endings = {each.name: each.ending for each in store.inbox.list().items}
    assert (n, endings) == (2, {"whole": "closed", "half": "cut_off", "young": "open"})


def test_old_conversations_go_with_their_spans_but_those_of_cases_stay(store: Store, clock: Clock) -> None:
    case = put(store, clock, "case")
    store.inbox.set_state([case], "case")
    put(store, clock, "old")
    clock.move(days=31)
    put(store, clock, "young")

    assert store.inbox.remove_old(0) == 0
    assert store.inbox.remove_old(30) == 1

    assert {each.name for each in store.inbox.list().items} == {"case", "young"}
    assert {row.trace_id for row in select_rows(store, SPANS.select())} == {"case", "young"}
    stages = {row.trace_id: row.stage for row in select_rows(store, TRACE.select())}
    assert {trace_id for trace_id, stage in stages.items() if stage != GONE} == {"case", "young"}
    assert store.inbox_spans.sources()[0].n_removed == 1


def test_a_full_inbox_loses_old_unread_conversations_first(store: Store, clock: Clock) -> None:
    read = put(store, clock, "read", n_bytes=1000)
    store.inbox.set_state([read], "read")
    labelled = put(store, clock, "labelled", n_bytes=1000)
    store.inbox.label(labelled, "jo", "passed", "")
    for name in ("oldest", "newest"):
        clock.move(seconds=1)
        put(store, clock, name, n_bytes=1000)

    assert store.inbox.remove_to_fit(store.inbox.size() - 500) == 1
    assert {each.name for each in store.inbox.list().items} == {"read", "labelled", "newest"}
    assert store.inbox.remove_to_fit(0) == 2
    assert {each.name for each in store.inbox.list().items} == {"labelled"}


def test_spans_of_no_agent_go_once_their_trace_is_quiet(store: Store, clock: Clock) -> None:
    store.inbox_spans.receive([batch("t1", "GET /")])
    (group_id,) = store.inbox_spans.connect({TraceKey("shop", "t1"): []})
    group = group_of(store, group_id)
    assert group is not None
    join(store, group)

    assert store.inbox_spans.remove_empty(clock.now - timedelta(minutes=1)) == 0
    assert store.inbox_spans.remove_empty(clock.now) == 1
    assert select_rows(store, SPANS.select()) == []


def test_labels_are_replaced_and_taken_away(store: Store, clock: Clock) -> None:
    number = put(store, clock, "t1")

    store.inbox.label(number, "jo", "failed", "late")
    store.inbox.label(number, "jo", "passed", "")
    store.inbox.label(number, "ann", "failed", "")
    store.inbox.label(number, "ann", "", "")

    assert [(each.labeller, each.verdict) for each in store.inbox.labels([number])[number]] == [("jo", "passed")]
    assert store.inbox.get(number).state == "read"
    with pytest.raises(NotFoundError):
        store.inbox.label(number + 1, "jo", "passed", "")


def test_a_draw_keeps_its_order_and_shows_the_verdicts_of_its_reader(store: Store, clock: Clock) -> None:
    ids = [put(store, clock, name) for name in ("a", "b", "c")]
    strata = (DrawStratum("errors", 2, 1), DrawStratum("rest", 9, 2))

    draw_id = store.inbox_draws.create("since:7d", strata, [(ids[2], "errors"), (ids[0], "rest")], 7, "jo")
    store.inbox.label(ids[0], "jo", "failed", "")
    draw = store.inbox_draws.newest("jo")

    assert draw is not None
    assert (draw.id, draw.filter, draw.strata, draw.seed) == (draw_id, "since:7d", strata, 7)
    assert [(each.conversation_id, each.stratum, each.verdict) for each in draw.items] == [
        (ids[2], "errors", ""),
        (ids[0], "rest", "failed"),
    ]
    store.inbox.remove([ids[0]])
    assert len(store.inbox_draws.get(draw_id, "ann").items) == 1


def test_scored_conversations_are_those_with_a_verdict(store: Store, clock: Clock) -> None:
    passed, failed, unknown, waiting = (put(store, clock, name) for name in ("a", "b", "c", "d"))
    store.inbox.close_quiet(clock.now)

    store.inbox.record_scores(
        {
            passed: [InboxScore(VERDICT, None, True), InboxScore("one", 1.0, True)],
            failed: [
                InboxScore(VERDICT, None, False),
                InboxScore("one", 1.0, True),
                InboxScore("two", 0.0, False, "no", "errors"),
            ],
            unknown: [InboxScore(VERDICT, None, None), InboxScore("one", 1.0, True), InboxScore("two", None, None)],
            10_000: [InboxScore(VERDICT, None, True)],
        }
    )

    found = store.inbox.scored_conversations(clock.now - timedelta(hours=1))
    assert [(each.id, each.passed) for each in found] == [(passed, True), (failed, False)]
    assert store.inbox.unscored(clock.now - timedelta(hours=1)) == [waiting]
    assert [each.reason for each in store.inbox.scores([failed])[failed]] == ["", "no"]


def test_above_the_limit_the_newest_scored_conversations_are_read(store: Store, clock: Clock) -> None:
    numbers = []
    for name in "abc":
        numbers.append(put(store, clock, name))
        store.inbox.record_scores({numbers[-1]: [InboxScore(VERDICT, None, True, "", "sample")]})
        clock.now += timedelta(minutes=1)

    found = store.inbox.scored_conversations(clock.now - timedelta(hours=1), limit=2)

    assert [each.id for each in found] == numbers[1:]


@pytest.mark.parametrize(("query", "is_scored_again"), [("Hello", False), ("Hello, and more", True)])
def test_a_score_goes_when_later_spans_change_its_conversation(
    store: Store, clock: Clock, query: str, is_scored_again: bool
) -> None:
    number = put(store, clock, "a")
    store.inbox.record_scores({number: [InboxScore("turn_count", 1.0, True, "", "sample")]})
    group = group_of(store, 1)
    assert group is not None

    join(store, group, conversation(clock, "a"), query=query)
    store.inbox.close_quiet(clock.now)

    assert store.inbox.unscored(clock.now - timedelta(hours=1)) == ([number] if is_scored_again else [])
    assert (number in store.inbox.scores([number])) is not is_scored_again


def test_refused_requests_are_counted_for_their_source(store: Store) -> None:
    store.inbox_spans.count_refused("shop", 2)
    store.inbox_spans.count_refused("shop", 3)

    assert [(each.name, each.n_refused, each.n_spans) for each in store.inbox_spans.sources()] == [("shop", 5, 0)]
