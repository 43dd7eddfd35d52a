"""Traces of hosted tools, pulled from servers on loopback: one conversation of all tools, updates, faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.hosted_tools import KEYS, FakeTool, Turn, hosted_tool
from tests.islands import of_tools

from evaldesk.desk.inbox import pulling
from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.pulling import PullDesk, PullOutcome, meets
from evaldesk.desk.inbox.upkeep import HOLD
from evaldesk.errors import EvaldeskError, FormatError, NotFoundError, RemoteError, UsageError, WorkspaceError
from evaldesk.formats import hosted
from evaldesk.model.inbox import Conversation
from evaldesk.settings import Settings, read_settings
from evaldesk.store import Store

each_tool = pytest.mark.parametrize("tool", [pytest.param(tool, marks=of_tools(tool)) for tool in KEYS])
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OPEN = "[inbox]\nkeep_days = 0\n"


class Person:
    """A person with a folder, an inbox, a clock, and a hosted tool."""

    def __init__(self, home: Path, fake: FakeTool, environment: dict[str, str], text: str = OPEN) -> None:
        self.now = NOW
        self.home, self.fake, self.environment = home, fake, environment
        self.waits: list[float] = []
        (home / "evaldesk.toml").write_text(text)
        self.store = Store.open(home / ".evaldesk" / "evaldesk.db", clock=lambda: self.now)
        self.settings: Settings = read_settings(home, (home,), environment=environment)

    @property
    def desk(self) -> PullDesk:
        """The desk that pulls."""
        return PullDesk(self.settings, self.store)

    def pull(self, source: str = "", *, since: datetime | None = None, where: str | None = None) -> PullOutcome:
        """Pull, without waiting where the server asks for it."""
        plan = self.desk.plan(source or self.fake.tool, where)
        return self.desk.pull(plan, self.waits.append, since)

    def conversations(self) -> list[Conversation]:
        """All conversations, newest first."""
        return [*self.store.inbox.list().items]


@pytest.fixture
def person_of(tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """Makes persons, each with the tool of a name and its traces."""
    with ExitStack() as stack:

        def make(tool: str, turns: list[Turn], text: str = OPEN) -> Person:
            fake, environment = stack.enter_context(hosted_tool(tool, turns))
            home = tmp_path / f"{tool}-{len(fake.turns)}"
            home.mkdir()
            person = Person(home, fake, environment, text)
            stack.callback(person.store.close)
            return person

        yield make


def two_turns() -> list[Turn]:
    """A conversation of two traces; the user was not content with the second."""
    first = Turn(1, NOW - timedelta(hours=3))
    return [first, Turn(2, first.at + timedelta(minutes=1), "And order 18?", "It is lost.", feedback=0.0)]


def turns_of(person: Person, conversation: Conversation) -> list[tuple[str, list[str], Any, str]]:
    transcript = person.store.inbox.content(conversation.id).transcript
    return [
        (
            turn.query,
            [call.name for call in turn.tool_calls],
            [event.result for event in turn.events if event.kind == "tool_result"],
            turn.answer,
        )
        for turn in transcript.turns
    ]


@each_tool
def test_a_pull_brings_the_same_conversation_of_each_tool(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())

    outcome = person.pull()
    (conversation,) = person.conversations()

    assert (outcome.changes.n_new, outcome.n_unreadable, outcome.n_filtered, outcome.n_cut) == (2, 0, 0, 0)
    shipped = [{"status": "shipped"}]
    assert turns_of(person, conversation) == [
        ("Where is order 17?", ["get_order"], shipped, "It was shipped."),
        ("And order 18?", ["get_order"], shipped, "It is lost."),
    ]
    assert (conversation.source, conversation.name, conversation.release) == (tool, "s-1", "1.4")
    assert conversation.tags == (("env=prod",) if tool == "mlflow" else ("prod",))
    assert (conversation.feedback, conversation.tokens, conversation.is_eval) == (-1.0, 80, False)
    assert conversation.user_hash not in ("", "u")
    # LangSmith's chain is no agent: its conversation begins with the first model call.
    assert NOW <= conversation.began_at + timedelta(hours=3) <= NOW + timedelta(seconds=1)


@each_tool
def test_a_trace_that_is_pulled_again_is_the_same_one(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())
    person.pull()
    (before,) = person.conversations()

    outcome = person.pull(since=NOW - timedelta(days=7))

    assert (outcome.changes.n_new, outcome.changes.n_changed, outcome.changes.n_equal) == (0, 0, 2)
    assert person.conversations() == [before]


@each_tool
def test_a_removed_conversation_does_not_come_back_with_a_pull(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())
    person.pull()
    (before,) = person.conversations()
    assert person.store.inbox.remove([before.id]) == 1

    outcome = person.pull(since=NOW - timedelta(days=7))

    assert (outcome.changes.n_new, outcome.changes.n_equal, outcome.changes.n_removed) == (0, 0, 2)
    assert person.conversations() == []
    while person.store.inbox_spans.forget_gone(person.store.now() + timedelta(days=1)):
        pass
    assert person.pull(since=NOW - timedelta(days=7)).changes.n_new == 2
    assert len(person.conversations()) == 1


@each_tool
def test_feedback_that_changes_later_changes_the_conversation(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())
    person.pull()
    (before,) = person.conversations()
    person.store.inbox.set_state([before.id], "read")

    person.fake.turns[1].feedback = 1.0
    person.fake.turns[1].answer = "It was found."
    outcome = person.pull(since=NOW - timedelta(days=7))
    (after,) = person.conversations()

    assert (outcome.changes.n_changed, outcome.changes.n_equal) == (1, 1)
    assert (after.id, after.feedback, after.state) == (before.id, 1.0, "read")
    assert (after.n_turns, after.n_spans) == (before.n_turns, before.n_spans)
    assert turns_of(person, after)[1][-1] == "It was found."


@each_tool
def test_the_next_pull_begins_an_hour_before_the_end_of_the_last(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())
    person.pull()
    person.now = NOW + timedelta(hours=2)
    person.fake.turns.append(Turn(3, NOW + timedelta(hours=1), "A third?", session="s-2"))

    outcome = person.pull()

    assert outcome.since == NOW - timedelta(hours=1)
    assert (outcome.changes.n_new, outcome.changes.n_equal) == (1, 0)
    assert [each.name for each in person.conversations()] == ["s-2", "s-1"]
    (record,) = person.desk.records()
    assert (record.source, record.until, record.error) == (tool, NOW + timedelta(hours=2), "")


@each_tool
def test_a_trace_that_began_before_the_pull_is_read_as_a_whole(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())

    # MLflow gives whole traces by the time of their begin.
    person.pull(since=person.fake.turns[0].at + timedelta(seconds=0 if tool == "mlflow" else 2))

    (conversation,) = person.conversations()
    assert len(turns_of(person, conversation)) == 2


@each_tool
def test_a_filter_leaves_traces_out(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())

    outcome = person.pull(where="feedback<0 tool:get_order")

    assert (outcome.changes.n_new, outcome.n_filtered) == (1, 1)
    assert [turn[0] for turn in turns_of(person, person.conversations()[0])] == ["And order 18?"]


@each_tool
def test_a_busy_server_is_asked_again_after_the_time_that_it_names(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())
    person.fake.faults = [(429, "7"), (503, ""), (502, "100000")]

    assert person.pull().changes.n_new == 2
    assert person.waits == [7.0, 2.0, hosted.MAX_WAIT_S]


@each_tool
@pytest.mark.parametrize(
    ("faults", "message"),
    [
        pytest.param([(401, "")], "refuses the key", id="key"),
        pytest.param([(302, "http://evil.example/steal")], "redirect to http://evil.example", id="redirect"),
        pytest.param([(500, "")] * hosted.MAX_TRIES, "answered 500", id="broken"),
        pytest.param([(400, "")], "answered 400", id="wrong"),
    ],
)
def test_a_fault_ends_the_pull_with_a_sentence_without_the_key(
    person_of: Callable[..., Person], tool: str, faults: list[tuple[int, str]], message: str
) -> None:
    person = person_of(tool, two_turns())
    person.fake.faults = [*faults]

    with pytest.raises(RemoteError, match=message) as caught:
        person.pull()
    (record,) = person.desk.records()
    state = (person.home / ".evaldesk" / pulling.STATE_NAME).read_text()

    assert message in record.error
    assert record.until is None
    assert len(person.fake.requests) == len(faults)
    assert not any(key in text for key in KEYS[tool].values() if len(key) > 7 for text in (str(caught.value), state))
    person.fake.faults = []
    assert person.pull().changes.n_new == 2


@each_tool
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b'{"data": 5, "runs": {}, "traces": "x", "experiment": 1}', b"[" * 100_000, b"\xff{}"],
)
def test_a_hostile_answer_is_an_error_in_words(person_of: Callable[..., Person], tool: str, body: bytes) -> None:
    person = person_of(tool, two_turns())
    person.fake.body = body

    with pytest.raises((FormatError, RemoteError)):
        person.pull()

    assert person.conversations() == []


@each_tool
def test_rows_of_any_shape_stop_no_other_trace(person_of: Callable[..., Person], tool: str) -> None:
    person = person_of(tool, two_turns())
    rows: list[Any] = [5, {}, {"id": 1}, {"traceId": "t", "id": [1], "type": "GENERATION"}, {"trace_id": 7, "id": "x"}]
    rows += [{"trace_info": {"trace_id": "t"}, "spans": [{"attributes": 5}, 3]}, {"context": {"trace_id": "t"}}]
    rows += [{"context": {"trace_id": "t", "span_id": "s"}, "attributes": 7, "annotations": 1, "span_kind": 4}]
    rows += [{"id": "r", "trace_id": "t", "run_type": {}, "inputs": 5, "outputs": [], "extra": 3}]
    body = {"data": rows, "runs": rows, "traces": rows, "meta": 3, "cursors": 4, "next_cursor": None}
    body |= {"experiment": {"experiment_id": "0"}}
    person.fake.body = json.dumps(body).encode()

    if tool == "langsmith":  # its list of projects is a list
        with pytest.raises(EvaldeskError):
            person.pull()
    else:
        person.pull()

    assert all(each.first_words == "" for each in person.conversations())


def test_a_cursor_that_never_ends_is_left(person_of: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> None:
    person = person_of("phoenix", two_turns())
    monkeypatch.setattr(hosted, "MAX_PAGES", 3)
    person.fake.page_size = 1

    with pytest.raises(RemoteError, match="more than 3 pages"):
        person.pull()

    person.fake.body = b'{"data": [], "next_cursor": "again"}'
    with pytest.raises(RemoteError, match="the same page again"):
        person.pull()


def test_an_answer_above_the_bound_is_refused(
    person_of: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    person = person_of("phoenix", two_turns())
    monkeypatch.setattr(hosted, "MAX_PAGE", 1000)

    with pytest.raises(FormatError, match="more than"):
        person.pull()


def test_a_trace_above_the_bounds_is_cut_and_counted(
    person_of: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    person = person_of("phoenix", two_turns())
    monkeypatch.setattr(pulling, "MAX_SPANS", 2)

    outcome = person.pull()

    assert (outcome.n_cut, outcome.changes.n_new) == (2, 2)


@of_tools("langfuse")
def test_an_old_server_of_langfuse_is_asked_for_whole_traces(person_of: Callable[..., Person]) -> None:
    person = person_of("langfuse", two_turns())
    person.fake.is_old = True

    assert person.pull().changes.n_new == 2
    (conversation,) = person.conversations()

    assert [turn[0] for turn in turns_of(person, conversation)] == ["Where is order 17?", "And order 18?"]
    assert (conversation.feedback, conversation.release) == (-1.0, "1.4")


@of_tools("phoenix")
def test_personal_data_and_keys_are_masked_before_they_are_stored(person_of: Callable[..., Person]) -> None:
    key = KEYS["phoenix"]["PHOENIX_API_KEY"]
    turns = [Turn(1, NOW - timedelta(hours=1), f"I am ann@example.com with {key}", "<b>\x1b[31mHi</b>")]
    person = person_of("phoenix", turns, '[inbox]\nmask = ["email"]\n')

    person.pull()
    (conversation,) = person.conversations()
    ((query, _, _, answer),) = turns_of(person, conversation)

    assert "[email]" in query
    assert key not in query
    assert answer == "<b>\x1b[31mHi</b>"  # shown as text by every door, stored as it came
    assert key.encode() not in b"".join(path.read_bytes() for path in (person.home / ".evaldesk").glob("evaldesk.db*"))


def test_one_process_pulls_and_another_may_join(person_of: Callable[..., Person]) -> None:
    person = person_of("phoenix", two_turns())
    end_pull = person.store.try_hold(pulling.PULL_HOLD)
    assert end_pull

    with pytest.raises(WorkspaceError, match="another process pulls"):
        person.pull()
    end_pull()
    end_inbox = person.store.try_hold(HOLD)
    assert end_inbox
    person.pull()

    assert person.conversations() == []  # the process that listens joins them
    end_inbox()
    person.pull()
    assert len(person.conversations()) == 1


TABLE = '[inbox.pull.shop]\ntool = "phoenix"\nkeys = ["SHOP_KEY"]\nwhere = "feedback<0"\n'


def test_a_source_of_the_settings_has_its_own_key_and_filter(person_of: Callable[..., Person]) -> None:
    person = person_of("phoenix", two_turns(), TABLE)
    with pytest.raises(RemoteError, match="refuses the key"):
        person.pull("shop")  # the usual variable is not that of the table

    environment = {**person.environment, "SHOP_KEY": KEYS["phoenix"]["PHOENIX_API_KEY"]}
    person.settings = read_settings(person.home, (person.home,), environment=environment)

    assert person.desk.is_of_file("shop")
    assert not person.desk.is_of_file("phoenix")
    assert person.pull("shop").n_filtered == 1
    assert [each.source for each in person.conversations()] == ["shop"]


def test_a_source_is_due_an_hour_after_its_last_pull(person_of: Callable[..., Person]) -> None:
    person = person_of("phoenix", two_turns(), "[inbox.pull.phoenix]\n")
    assert person.desk.due() == ["phoenix"]
    person.pull()

    assert person.desk.due() == []
    person.now = NOW + timedelta(minutes=61)
    assert person.desk.due() == ["phoenix"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"phoenix": 5}', '{"phoenix": {"until": "x"}}', "\xff"])
def test_a_file_of_the_last_pulls_that_cannot_be_read_is_none(person_of: Callable[..., Person], text: str) -> None:
    person = person_of("phoenix", two_turns())
    (person.home / ".evaldesk" / pulling.STATE_NAME).write_text(text, encoding="latin-1")

    assert person.desk.records() == []
    assert person.pull().since == NOW - timedelta(days=7)


@pytest.mark.parametrize(
    ("source", "environment", "where", "error", "message"),
    [
        pytest.param("opik", {}, "", NotFoundError, "no source named 'opik'", id="unknown"),
        pytest.param("langfuse", {}, "", UsageError, "set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY", id="no key"),
        pytest.param("phoenix", {}, "", UsageError, "set PHOENIX_ENDPOINT", id="no address"),
        pytest.param("phoenix", {"PHOENIX_ENDPOINT": "http://a.example"}, "", UsageError, "is https", id="http"),
        pytest.param("phoenix", {"PHOENIX_ENDPOINT": "file:///etc/passwd"}, "", UsageError, "is https", id="file"),
        pytest.param("phoenix", {"PHOENIX_ENDPOINT": "https://me:pw@a.example"}, "", UsageError, "is https", id="user"),
        pytest.param(
            "phoenix", {"PHOENIX_ENDPOINT": "https://a.example"}, "state:new", UsageError, "state:new", id="state"
        ),
        pytest.param(
            "phoenix", {"PHOENIX_ENDPOINT": "https://a.example"}, "no-case", UsageError, "no-case", id="no-case"
        ),
        pytest.param("phoenix", {"PHOENIX_ENDPOINT": "https://a.example"}, 'text:"x"', UsageError, "text", id="text"),
        pytest.param("langsmith", {"LANGSMITH_API_KEY": "a\nb: c"}, "", UsageError, "printable", id="header"),
    ],
)
def test_a_pull_that_cannot_be_is_refused_before_anything_is_asked(
    tmp_path: Path, source: str, environment: dict[str, str], where: str, error: type[Exception], message: str
) -> None:
    settings = read_settings(tmp_path, (tmp_path,), environment=environment)
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store, pytest.raises(error, match=message):
        PullDesk(settings, store).plan(source, where)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[inbox]\npull = 5\n", "a table for each source"),
        ('[inbox.pull."a b"]\n', "a source has letters"),
        ('[inbox.pull.shop]\nurl = "http://example.com"\n', "url is an https address"),
        ('[inbox.pull.shop]\nkeys = ["sk-lf-1 2"]\n', "names of environment variables"),
        ("[inbox.pull.shop]\nkey = 5\n", "may have the keys"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "evaldesk.toml").write_text(text)

    with pytest.raises(UsageError, match=message):
        read_settings(tmp_path, (tmp_path,), environment={})


@of_tools("phoenix")
def test_the_filter_of_a_pull_finds_as_the_list_does(person_of: Callable[..., Person]) -> None:
    person = person_of("phoenix", [*two_turns(), Turn(3, NOW - timedelta(hours=30), session="s-2", feedback=1.0)])
    person.pull()
    conversations = person.conversations()
    lines = ["error", "not error", "feedback<0", "feedback>=0", "not feedback<0", "turns=2", "calls!=2", "tokens>40"]
    lines += ["cost>0.0003", "latency>1s", "tool:get_order", "tool:x", "tag:prod", "not tag:prod", "release:1.4"]
    lines += ["release:2", "agent:support", "since:1d", "until:1d", "since:1d feedback<0", "cost<1 not turns=2"]

    for line in lines:
        conditions = parse_filter(line)
        in_memory = [each.id for each in conversations if meets(each, conditions, NOW)]
        assert in_memory == [each.id for each in person.store.inbox.list(conditions).items], line
